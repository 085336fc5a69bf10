// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// cert.pem and key.pem in the folder, signed by themselves and good for one name: "IP:127.0.0.1",
/// "DNS:registry.example".
void make_certificate(const ScratchDirectory& folder, const std::string& name);

}  // namespace ferry::test
