// SPDX-License-Identifier: Apache-2.0
// Text of a log, or another program's words, for somebody else's eyes.
#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// The text with "***" for what could be a secret, and for addresses of machines:
///   what stands behind `Bearer` and `Basic`, and in a URL before "@" and behind "?";
///   the value behind a key in whose name there is a word for a secret (password, token ...), or that ends in
///   one (auth, key); behind `Authorization` and `Cookie` the rest of the line. Quotes may have backslashes;
///   the value of such an option (`--password VALUE`);
///   words that are a JWT, or as long and mixed as only keys are;
///   IPv4, IPv6 and MAC addresses;
///   PEM blocks, also such as begin before the text.
/// It is a sieve and no proof: whoever sends it on reads it first. Lines stay lines; of one that is longer
/// than any program of ours writes the rest is cut.
std::string masked_text(std::string_view text);

/// Of one of a program's arguments: whether the next one could be a secret ("--password").
bool is_secret_option(std::string_view argument);

}  // namespace ferry
