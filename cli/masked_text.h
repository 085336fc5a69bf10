// SPDX-License-Identifier: Apache-2.0
// Hides secrets in a log, or in another program's words, before strangers read them.
#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// Returns the text with "***" in place of possible secrets and of machines' addresses:
///   words after `Bearer` and `Basic`, and in a URL the text before "@" and after "?";
///   the value of a key whose name has a word for a secret (password, token ...) or ends in one (auth, key);
///   after `Authorization` and `Cookie` the rest of the line. Quotes may have backslashes;
///   the value of such an option (`--password VALUE`);
///   words that are a JWT, or as long and mixed as only keys are;
///   IPv4, IPv6 and MAC addresses;
///   PEM blocks, also those that begin before the text.
/// The sieve is not perfect: its sender must read the text first. Lines stay lines. The end of a line that is
/// longer than any of Ferry's is cut off.
std::string masked_text(std::string_view text);

/// True: the argument after this one could be a secret ("--password").
bool is_secret_option(std::string_view argument);

}  // namespace ferry
