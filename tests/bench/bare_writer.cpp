// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/bare_writer.h"

#include <array>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/process/spawn.h"

namespace ferry::test {
namespace {

constexpr char kDone = '+';
constexpr char kFailed = '-';

[[noreturn]] void serve(int line, const std::vector<AttributeWrite>& writes) {
  char word = 0;
  while (::read(line, &word, sizeof word) == sizeof word) {
    char answer = kDone;
    try {
      write_all(writes);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      answer = kFailed;
    }
    if (::write(line, &answer, sizeof answer) != sizeof answer) break;
  }
  ::_exit(EXIT_SUCCESS);
}

}  // namespace

void write_all(const std::vector<AttributeWrite>& writes) {
  for (const AttributeWrite& write : writes) {
    const std::filesystem::path path = "/" / write.path;
    const UniqueFd attribute(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    const auto length = static_cast<ssize_t>(write.value.size());
    if (!attribute.valid() || ::write(attribute.get(), write.value.data(), write.value.size()) != length)
      throw std::runtime_error("cannot write " + path.string());
  }
}

BareWriter::BareWriter(std::vector<AttributeWrite> writes) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw std::runtime_error("cannot make a socket pair");
  line_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ != 0) return;
  line_.reset();
  serve(theirs.get(), writes);
}

BareWriter::~BareWriter() {
  line_.reset();
  reap(pid_);
}

std::chrono::nanoseconds BareWriter::write_all() {
  const auto begin = std::chrono::steady_clock::now();
  const char word = 'w';
  char answer = 0;
  if (::write(line_.get(), &word, sizeof word) != sizeof word ||
      ::read(line_.get(), &answer, sizeof answer) != sizeof answer || answer != kDone)
    throw std::runtime_error("the bare writer has failed");
  return std::chrono::steady_clock::now() - begin;
}

}  // namespace ferry::test
