// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// NAME.pem and NAME.key in the folder: an authority.
void make_authority(const ScratchDirectory& folder, const std::string& name);

/// NAME.pem and NAME.key, signed by an authority of the folder for `subject`, as in "IP:127.0.0.1" or
/// "DNS:api.example". With `days` below 0 it has ended.
void make_certificate(const ScratchDirectory& folder, const std::string& name, const std::string& authority,
                      const std::string& subject, int days = 2);

/// NAME.key in the folder with a pass phrase: ENCRYPTED.
void encrypt_key(const ScratchDirectory& folder, const std::string& name, const std::string& encrypted);

}  // namespace ferry::test
