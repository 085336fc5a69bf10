// SPDX-License-Identifier: Apache-2.0
// The answer that ferry-virt prints on stdout and its client reads: a single JSON object.
//
//   {"domains":[{"name":"a","uuid":"…","pid":412,"pci":["0000:01:00.0"],"mdev":["…"]}]}
//   {"error":{"code":"unreachable","message":"…","hint":"…"}}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "virt/domain.h"

namespace ferry::virt {

std::string answer_text(const std::vector<Domain>& domains);
std::string answer_text(const Error& error);

/// Reads an answer. An error in it is returned as that error; an unreadable answer is Errc::malformed_host.
Result<std::vector<Domain>> read_domains_answer(std::string_view text);

}  // namespace ferry::virt
