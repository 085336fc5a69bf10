// SPDX-License-Identifier: Apache-2.0
// claim-request: sends a request about a ResourceClaim to the hostd of this host, as `ferry dra` does.
//
// usage: claim-request [--leave] < REQUEST
// REQUEST is JSON (api/claim_request.h). The answer goes to standard output, also if it is an error. The exit
// status is 0, that of the error in the answer, or 1 without an answer. --leave: does not wait for the
// answer.
#include "api/claim_request.h"

#include <chrono>
#include <exception>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "common/exit_status.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "tests/support/claim_client.h"

namespace ferry::test {
namespace {

// Under emulation hostd may take a minute to bind a group.
constexpr std::chrono::minutes kPatience{5};

int complain(const Error& error) {
  std::cerr << "claim-request: " << error.text() << "\n";
  return static_cast<int>(exit_status_of(error));
}

int run(const std::vector<std::string>& words) {
  const bool leaves = words == std::vector<std::string>{"--leave"};
  if (!leaves && !words.empty()) {
    std::cerr << "usage: claim-request [--leave] < REQUEST\n";
    return static_cast<int>(ExitStatus::usage);
  }
  const std::string request(std::istreambuf_iterator<char>(std::cin), {});
  const HostFs host("/");
  if (leaves) {
    const auto sent = send_to_hostd(host, request);
    return sent ? 0 : complain(sent.error());
  }
  const auto answer = ask_hostd(host, request, kPatience);
  if (!answer) return complain(answer.error());
  std::cout << *answer << "\n";
  const auto devices = api::read_claim_answer(*answer);
  return devices ? 0 : static_cast<int>(exit_status_of(devices.error()));
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  try {
    return ferry::test::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "claim-request: " << error.what() << "\n";
    return 1;
  }
}
