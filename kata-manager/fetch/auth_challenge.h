// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::kata {

/// A challenge of a WWW-Authenticate header. Scheme and parameter names are in lower case.
struct AuthChallenge {
  std::string scheme;  ///< "bearer", "basic"
  std::map<std::string, std::string> parameters;
};

/// The challenges of one header, up to the first that cannot be parsed. ABI: RFC 9110, 11.6.1.
std::vector<AuthChallenge> parse_auth_challenges(std::string_view header);

}  // namespace ferry::kata
