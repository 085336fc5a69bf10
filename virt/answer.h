// SPDX-License-Identifier: Apache-2.0
// The answer that ferry-virt prints on stdout and its client reads: a single JSON object.
//
//   {"domains":[{"name":"a","uuid":"…","pid":412,"pci":["0000:01:00.0"],"mdev":["…"]}]}
//   {"domain":"…","accelerator":"tcg","seconds":1.5,"passed":true,
//    "guest":[{"address":"0000:01:00.0","vendor":"10de","device":"2684","class":"030000",
//              "subsystem_vendor":"10de","subsystem_device":"16f3"}],
//    "devices":[{"device":"0000:65:00.0","host":{"vendor":"10de",…},"seen_as":"0000:01:00.0" or null}]}
//   {"error":{"code":"unreachable","message":"…","hint":"…"}}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "virt/domain.h"
#include "virt/selftest.h"

namespace ferry::virt {

std::string answer_text(const std::vector<Domain>& domains);
std::string answer_text(const SelftestReport& report);
std::string answer_text(const Error& error);

/// Reads an answer. An error in it is returned as that error; an unreadable answer is Errc::malformed_host.
Result<std::vector<Domain>> read_domains_answer(std::string_view text);
Result<SelftestReport> read_selftest_answer(std::string_view text);

/// "auto", "kvm", "tcg".
std::string_view text(GuestAccelerator accelerator);

}  // namespace ferry::virt
