// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

struct ReceivedApiRequest {
  std::string method;
  std::string path;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
  int connection = 0;  ///< the first is 1
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

/// api_standin.py with these words, without the first.
class ApiStandin {
 public:
  explicit ApiStandin(const std::vector<std::string>& words);
  ApiStandin(const ApiStandin&) = delete;
  ApiStandin& operator=(const ApiStandin&) = delete;
  ApiStandin(ApiStandin&&) = delete;
  ApiStandin& operator=(ApiStandin&&) = delete;
  ~ApiStandin();

  std::uint16_t port() const { return port_; }
  /// Requests, in the order in which they came.
  std::vector<ReceivedApiRequest> seen() const;

 private:
  ScratchDirectory folder_;
  UniqueFd input_;  ///< it ends with it
  std::uint16_t port_ = 0;
  int pid_ = -1;
};

}  // namespace ferry::test
