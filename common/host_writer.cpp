// SPDX-License-Identifier: Apache-2.0
#include "common/host_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/spawn.h"
#include "common/stuck_writes.h"

namespace ferry {
namespace {

constexpr std::size_t kLongestAnswer = 64UL * 1024;

struct Answer {
  std::optional<int> number;  // absent: the child has ended without one
  std::string read;
};

// Absent: there is none yet.
std::optional<Answer> take_answer(const UniqueFd& line) {
  int number = 0;
  // Not touched beforehand: most answers are the number alone.
  const auto read = std::make_unique_for_overwrite<char[]>(kLongestAnswer);  // NOLINT(*-avoid-c-arrays)
  std::array<iovec, 2> parts = {iovec{.iov_base = &number, .iov_len = sizeof number},
                                iovec{.iov_base = read.get(), .iov_len = kLongestAnswer}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t size = ::recvmsg(line.get(), &message, MSG_DONTWAIT);
  // A child that ends with requests unread: told once, before what it had answered. ABI: net/unix/af_unix.c,
  // unix_release_sock().
  if (size < 0 && errno == ECONNRESET) size = ::recvmsg(line.get(), &message, MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) return std::nullopt;
  if (size < static_cast<ssize_t>(sizeof number)) return Answer{};
  return Answer{.number = number,
                .read = std::string(read.get(), static_cast<std::size_t>(size) - sizeof number)};
}

// What a socket's buffer takes while the child is in a write; of values that are short, as those of sysfs
// are.
constexpr std::size_t kAtOnce = 32;

/// The answers of several writes, as many as have come taken by one call: numbers alone.
class Numbers {
 public:
  std::optional<int> next(const UniqueFd& line) {
    if (next_ == count_) take(line);
    if (next_ == count_) return std::nullopt;
    return numbers_[next_++];
  }

 private:
  void take(const UniqueFd& line) {
    std::array<iovec, kAtOnce> parts{};
    std::array<mmsghdr, kAtOnce> messages{};
    for (std::size_t i = 0; i < kAtOnce; ++i) {
      parts[i] = {.iov_base = &numbers_[i], .iov_len = sizeof numbers_[i]};
      messages[i].msg_hdr.msg_iov = &parts[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int came = ::recvmmsg(line.get(), messages.data(), kAtOnce, MSG_DONTWAIT, nullptr);
    next_ = count_ = 0;
    // One that is short is the end of the child, which is seen again.
    while (count_ < static_cast<std::size_t>(std::max(came, 0)) &&
           messages[count_].msg_len == sizeof numbers_[count_])
      ++count_;
  }

  std::array<int, kAtOnce> numbers_{};
  std::size_t next_ = 0;
  std::size_t count_ = 0;
};

// What an answer's number means.
Result<> outcome(int number, const std::string& what) {
  if (number < 0) return fail(Errc::failed, what + ": it ended with status " + std::to_string(-number));
  if (number != 0) return fail(error_from_errno(number, what));
  return {};
}

enum class WokenBy { each_answer, the_bell };

// Absent: it is late. The end of the child wakes in either case.
std::optional<Answer> wait_for_answer(const UniqueFd& line, const UniqueFd& bell, WokenBy woken_by,
                                      std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  const short of_line = woken_by == WokenBy::each_answer ? POLLIN : 0;
  for (;;) {
    if (auto answer = take_answer(line)) return answer;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() < 0) return std::nullopt;
    std::array<pollfd, 2> watched = {pollfd{.fd = line.get(), .events = of_line, .revents = 0},
                                     pollfd{.fd = bell.get(), .events = POLLIN, .revents = 0}};
    const int ready = ::poll(watched.data(), watched.size(), static_cast<int>(left.count()) + 1);
    if (ready < 0 && errno != EINTR) return std::nullopt;
    eventfd_t rung = 0;
    if (ready > 0 && watched.back().revents != 0) (void)::eventfd_read(bell.get(), &rung);
  }
}

// A child that is gone is noticed by the missing answer.
void send_to(const UniqueFd& line, const std::string& request) {
  (void)::send(line.get(), request.data(), request.size(), MSG_NOSIGNAL);
}

std::string write_request(char kind, const std::filesystem::path& path, std::string_view value) {
  std::string request = kind + path.string();
  request += '\0';
  request += value;
  return request;
}

std::string words_of(const HostCommand& command) {
  std::string out = command.device;
  out += '\0';
  out += command.root.string();
  for (const std::string& word : command.words) {
    out += '\0';
    out += word;
  }
  return out;
}

// Of an act that gives nothing back.
Result<> done(const Result<std::string>& answer) {
  if (!answer) return fail(answer.error());
  return {};
}

char kind_of(const AttributeWrite& write, bool first) {
  if (write.only_if_unset) return first ? 'n' : 'N';
  return first ? 'w' : 'W';
}

}  // namespace

bool is_unset(std::string_view attribute) {
  const auto begin = attribute.find_first_not_of(" \t\n");
  return begin == std::string_view::npos ||
         attribute.substr(begin, attribute.find_last_not_of(" \t\n") + 1 - begin) == "0";
}

Result<> HostWriter::write_checked(const AttributeWrite& write) {
  if (write.only_if_unset) {
    auto now = read(write.path);
    if (!now) return fail(std::move(now).error());
    if (!is_unset(*now)) return fail(error_from_errno(EEXIST, "write /" + write.path.string()));
  }
  return this->write(write.path, write.value);
}

SpawningWriter::SpawningWriter(HostFs& host, std::filesystem::path program, std::chrono::milliseconds slow)
    : host_(&host), program_(std::move(program)), slow_(slow) {}

SpawningWriter::~SpawningWriter() {
  collect_late();
  for (Child& child : idle_) {
    child.line.reset();  // the word to end
    reap(child.pid);
  }
}

void SpawningWriter::prepare(std::size_t acts) {
  const std::string word = "p";
  {
    const std::lock_guard lock(mutex_);
    for (const Child& child : idle_) send_to(child.line, word);
  }
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (idle_.size() >= acts) return;
    }
    auto child = start_child();
    if (!child) return;  // the act that needs it says why
    send_to(child->line, word);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(*child));
  }
}

void SpawningWriter::collect_late() {
  const std::lock_guard lock(mutex_);
  std::erase_if(late_, [](int pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

Result<SpawningWriter::Child> SpawningWriter::idle_child() {
  collect_late();
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      Child child = std::move(idle_.back());
      idle_.pop_back();
      return child;
    }
  }
  return start_child();
}

Result<SpawningWriter::Child> SpawningWriter::start_child() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail(error_from_errno(errno, "make a socket pair"));
  }
  Child child{
      .pid = 0, .line = UniqueFd(ends[0]), .bell = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
  const UniqueFd theirs(ends[1]);
  if (!child.bell.valid()) return fail(error_from_errno(errno, "make an eventfd"));

  // With nothing else of ours: a child that hangs would keep it for ever.
  auto started =
      spawn(program_, {"ferry", std::string(kHostActVerb), host_->root().string()},
            {.in = theirs.get(), .out = child.bell.get(), .environment = false, .own_session = true});
  if (!started) return fail(std::move(started).error());
  child.pid = *started;
  return child;
}

Result<std::string> SpawningWriter::act(const std::string& request, const std::string& what,
                                        const std::string& value, std::chrono::milliseconds deadline) {
  auto child = idle_child();
  if (!child) return fail(std::move(child).error().during(what));
  send_to(child->line, request);
  auto answered = answer(*child, what, value, deadline);
  keep(std::move(*child));
  return answered;
}

void SpawningWriter::keep(Child child) {
  if (!child.line.valid()) return;
  if (child.still_recorded) {
    child.line.reset();
    reap(child.pid);
    return;
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(child));
}

Result<std::string> SpawningWriter::answer(Child& child, const std::string& what, const std::string& value,
                                           std::chrono::milliseconds deadline) {
  const auto patience = std::min(slow_, deadline);
  // Of several writes it is woken once for all, and not between one and the next.
  auto answer = wait_for_answer(child.line, child.bell, WokenBy::the_bell, patience);
  bool recorded = false;
  if (!answer && patience < deadline) {
    recorded = record_stuck_write(*host_, child.pid, what, value, deadline - patience).has_value();
    answer = wait_for_answer(child.line, child.bell, WokenBy::each_answer, deadline - patience);
  }
  if (!answer) {
    auto stuck = record_stuck_write(*host_, child.pid, what, value);
    child.line.reset();
    {
      const std::lock_guard lock(mutex_);
      late_.push_back(child.pid);
    }
    const std::string state = stuck ? stuck->kernel_state : "state unknown";
    return fail(
        Errc::stuck,
        what + ": still in the kernel after " + std::to_string(deadline.count()) + " ms (process " +
            std::to_string(child.pid) + ", " + state + ")",
        what.starts_with("read ")
            ? kLockedHint
            : "the device is left alone until the write returns; if it never does, only a reboot helps");
  }
  if (recorded) {
    if (auto forgotten = forget_stuck_write(*host_, child.pid); !forgotten) {
      spdlog::debug("{}", forgotten.error().message);
      child.still_recorded = true;
    }
  }
  if (!answer->number) {
    child.line.reset();
    reap(child.pid);
    return fail(Errc::failed, what + ": the writing process ended without an answer");
  }
  if (auto done = outcome(*answer->number, what); !done) return fail(std::move(done).error());
  return std::move(answer->read);
}

Result<> SpawningWriter::write(const std::filesystem::path& relative, std::string_view value,
                               std::chrono::milliseconds deadline) {
  return done(
      act(write_request('w', relative, value), "write /" + relative.string(), std::string(value), deadline));
}

Result<> SpawningWriter::write_in_order(std::span<const AttributeWrite> writes,
                                        const std::function<void(std::size_t)>& begin) {
  auto child = idle_child();
  if (!child) return fail(std::move(child).error());
  Result<> first_failure;
  Numbers numbers;
  for (std::size_t next = 0; next < writes.size() && first_failure;) {
    const auto some = writes.subspan(next, std::min(kAtOnce, writes.size() - next));
    for (const AttributeWrite& write : some)
      send_to(child->line, write_request(kind_of(write, &write == some.data()), write.path, write.value));
    for (const AttributeWrite& write : some) {
      if (first_failure && begin) begin(next);
      ++next;
      const auto number = numbers.next(child->line);
      if (number && *number == 0) continue;
      const std::string what = "write /" + write.path.string();
      auto answered =
          number ? outcome(*number, what) : done(answer(*child, what, write.value, kWriteDeadline));
      if (first_failure && !answered) first_failure = std::move(answered);
      if (!child->line.valid()) return first_failure;
    }
  }
  keep(std::move(*child));
  return first_failure;
}

Result<> SpawningWriter::load_module(std::string_view name, std::chrono::milliseconds deadline) {
  return done(act("m" + std::string(name), "load module " + std::string(name), std::string(name), deadline));
}

Result<std::string> SpawningWriter::read(const std::filesystem::path& relative,
                                         std::chrono::milliseconds deadline) {
  return act("r" + relative.string(), "read /" + relative.string(), {}, deadline);
}

// Called a read: it changes nothing, and waits for another's act on the device.
Result<> SpawningWriter::try_claim(const std::filesystem::path& relative, DeviceNumber number,
                                   std::chrono::milliseconds deadline) {
  const std::string value = std::to_string(number.major) + ":" + std::to_string(number.minor);
  return done(
      act(write_request('e', relative, value), "read the claim on /" + relative.string(), {}, deadline));
}

Result<> SpawningWriter::unload_module(std::string_view name, std::chrono::milliseconds deadline) {
  return done(
      act("u" + std::string(name), "unload module " + std::string(name), std::string(name), deadline));
}

std::string HostCommand::text() const {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

Result<std::string> SpawningWriter::call(const LibraryCall& call, std::chrono::milliseconds deadline) {
  auto answer = act("c" + (call.changes ? call.device : "") + '\0' + call.name + '\0' + call.request,
                    call.what, call.device, deadline);
  if (!answer && answer.error().code == std::errc::function_not_supported) {
    answer.error().code = make_error_code(Errc::unsupported);
  }
  return answer;
}

Result<> SpawningWriter::run(const HostCommand& command, std::chrono::milliseconds deadline) {
  return done(act("x" + words_of(command), "run " + command.text(), command.device, deadline));
}

Result<std::string> SpawningWriter::output(const HostCommand& command, std::chrono::milliseconds deadline) {
  return act("o" + words_of(command), "run " + command.text(), command.device, deadline);
}

}  // namespace ferry
