// SPDX-License-Identifier: Apache-2.0
#include "tests/kube/api_standin.h"

#include <array>
#include <fcntl.h>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "common/process/spawn.h"
#include "hostfs/descriptor_reads.h"
#include "tests/support/must.h"

namespace ferry::test {
namespace {

struct Pipe {
  UniqueFd out;
  UniqueFd in;
  Pipe() {
    std::array<int, 2> fds{};
    if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    out = UniqueFd(fds[0]);
    in = UniqueFd(fds[1]);
  }
};

// One line, byte by byte: what comes behind it is not waited for.
std::string read_line(int fd) {
  std::string line;
  char c = 0;
  while (::read(fd, &c, 1) == 1 && c != '\n') line.push_back(c);
  return line;
}

}  // namespace

ApiStandin::ApiStandin(const std::vector<std::string>& words) {
  Pipe input;
  Pipe output;
  std::vector<std::string> all{"python3", FERRY_SOURCE_DIR "/tests/kube/api_standin.py",
                               (folder_.path() / "seen").string()};
  all.insert(all.end(), words.begin(), words.end());
  pid_ = must(spawn("python3", all, {.in = input.out.get(), .out = output.in.get(), .err = 2}));
  output.in.reset();
  input_ = std::move(input.in);
  const std::string port = read_line(output.out.get());
  if (port.empty()) throw std::runtime_error("api_standin.py does not begin");
  port_ = static_cast<std::uint16_t>(std::stoi(port));
}

ApiStandin::~ApiStandin() {
  input_.reset();
  reap(pid_);
}

std::vector<ReceivedApiRequest> ApiStandin::seen() const {
  std::vector<ReceivedApiRequest> out;
  std::ifstream file(folder_.path() / "seen");
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    out.push_back({.method = json.at("method"),
                   .path = json.at("path"),
                   .headers = json.at("headers"),
                   .body = json.at("body"),
                   .connection = json.at("connection")});
  }
  return out;
}

}  // namespace ferry::test
