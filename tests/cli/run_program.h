// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ferry::test {

struct ProgramResult {
  int status = -1;  ///< exit status; -1: did not exit by itself
  std::string out;
  std::string err;
};

/// Runs `ferry` with these arguments to its end, as `user` if one is given (a number; needs root).
ProgramResult run_ferry(const std::vector<std::string>& arguments, unsigned user = 0);

/// Runs it under another name, with `environment` ("NAME=value") alone.
ProgramResult run_ferry_as(const std::string& name, const std::vector<std::string>& arguments,
                           const std::vector<std::string>& environment = {});

/// Runs `ferry` with its standard output on a file that is there ("/dev/full").
ProgramResult run_ferry_into(const std::string& file, const std::vector<std::string>& arguments);

}  // namespace ferry::test
