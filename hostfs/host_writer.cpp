// SPDX-License-Identifier: Apache-2.0
#include "hostfs/host_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "common/process/spawn.h"
#include "common/text/text.h"
#include "hostfs/host_act_request.h"
#include "hostfs/stuck_writes.h"

namespace ferry {
namespace {

constexpr std::size_t kLongestAnswer = 64UL * 1024;

// Bytes of a batch in one request; less than the child takes at once.
constexpr std::size_t kLongestRun = 32UL * 1024;

// Errors are ignored: the missing answer shows that a child is gone.
void send_to(const UniqueFd& line, const std::string& request) {
  (void)::send(line.get(), request.data(), request.size(), MSG_NOSIGNAL);
}

std::string write_request(ActKind kind, const std::filesystem::path& path, std::string_view value) {
  std::string request = act_request(kind, path.string());
  request += '\0';
  request += value;
  return request;
}

std::string words_of(const HostCommand& command) {
  std::string out = command.root.string();
  for (const std::string& word : command.words) {
    out += '\0';
    out += word;
  }
  return out;
}

std::string act_of(const AttributeWrite& write) {
  return "write /" + write.path.string();
}

Result<> done(const Result<std::string>& answer) {
  if (!answer) return fail(answer.error());
  return {};
}

}  // namespace

bool is_unset(std::string_view attribute) {
  const std::string_view set = trimmed(attribute, " \t\n");
  return set.empty() || set == "0";
}

Result<> HostWriter::write_checked(const AttributeWrite& write) {
  if (write.only_if_unset) {
    auto now = read(write.path);
    if (!now) return fail(std::move(now).error());
    if (!is_unset(*now)) return fail(error_from_errno(EEXIST, "write /" + write.path.string()));
  }
  return this->write(write.path, write.value);
}

SpawningWriter::SpawningWriter(HostFs& host, std::filesystem::path program, std::chrono::milliseconds slow,
                               std::chrono::milliseconds deadline_of_each)
    : host_(&host), program_(std::move(program)), slow_(slow), deadline_of_each_(deadline_of_each) {}

SpawningWriter::~SpawningWriter() {
  collect_late();
  for (Child& child : idle_) {
    child.line.reset();  // the child ends when its line closes
    reap(child.pid);
  }
}

void SpawningWriter::prepare(std::size_t acts) {
  const std::string word = act_request(ActKind::prepare, {});
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
    if (!child) return;  // the act that needs the child reports the error
    send_to(child->line, word);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(*child));
  }
}

void SpawningWriter::collect_late() {
  const std::lock_guard lock(mutex_);
  std::erase_if(late_, [this](const Late& late) {
    if (::waitpid(late.pid, nullptr, WNOHANG) == 0) return false;
    // The child may have looked for its record before the record was written.
    (void)forget_stuck_write(*host_, late.pid);
    return true;
  });
}

Result<SpawningWriter::Child> SpawningWriter::idle_child() {
  collect_late();
  {
    const std::lock_guard lock(mutex_);
    while (!idle_.empty()) {
      Child child = std::move(idle_.back());
      idle_.pop_back();
      pollfd line{.fd = child.line.get(), .events = 0, .revents = 0};
      const bool has_ended = ::poll(&line, 1, 0) == 1;
      if (!has_ended) return child;
      reap(child.pid);
    }
  }
  return start_child();
}

Result<SpawningWriter::Child> SpawningWriter::start_child() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(error_from_errno(errno, "make a socket pair"));
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  auto progress = WriteProgress::make();
  if (!progress) return fail(std::move(progress).error());
  Child child{.pid = 0, .line = std::move(ours), .progress = std::move(*progress)};

  // The child inherits nothing else: a stuck child would keep it open for ever.
  auto started = spawn(
      program_, {"ferry", std::string(kHostActVerb), host_->root().string()},
      {.in = theirs.get(), .out = child.progress.descriptor(), .environment = false, .own_session = true});
  if (!started) return fail(std::move(started).error());
  child.pid = *started;
  return child;
}

Result<std::string> SpawningWriter::act(const std::string& request, const std::string& what,
                                        const std::string& value, std::chrono::milliseconds deadline) {
  auto child = idle_child();
  if (!child) return fail(std::move(child).error().during(what));
  send_to(child->line, request);
  const auto patience = std::min(slow_, deadline);
  auto answer = wait_for_answer(*child, patience);
  if (!answer) {
    const auto at = [&] { return Act{.what = what, .value = value}; };
    auto late = late_answer(*child, at, patience, deadline);
    if (!late) return fail(std::move(late).error());
    answer = std::move(*late);
  }
  auto judged = judge(*child, std::move(*answer), what);
  keep(std::move(*child));
  return judged;
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

std::optional<SpawningWriter::Answer> SpawningWriter::wait_for_answer(const Child& child,
                                                                      std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd line{.fd = child.line.get(), .events = POLLIN, .revents = 0};
    const auto most_now = std::max(left, std::chrono::milliseconds(0));
    const int ready = ::poll(&line, 1, static_cast<int>(most_now.count()));
    if (ready > 0) break;
    if ((ready < 0 && errno != EINTR) || left.count() <= 0) return std::nullopt;
  }
  int number = 0;
  // The buffer is not cleared beforehand: most answers are the number alone.
  const auto read = std::make_unique_for_overwrite<char[]>(kLongestAnswer);  // NOLINT(*-avoid-c-arrays)
  std::array<iovec, 2> parts = {iovec{.iov_base = &number, .iov_len = sizeof number},
                                iovec{.iov_base = read.get(), .iov_len = kLongestAnswer}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t size = ::recvmsg(child.line.get(), &message, MSG_DONTWAIT);
  if (size < static_cast<ssize_t>(sizeof number)) return Answer{};
  return Answer{.number = number,
                .read = std::string(read.get(), static_cast<std::size_t>(size) - sizeof number)};
}

Result<SpawningWriter::Answer> SpawningWriter::late_answer(Child& child, const Acting& at,
                                                           std::chrono::milliseconds waited,
                                                           std::chrono::milliseconds deadline) {
  std::optional<Answer> answer;
  bool recorded = false;
  if (waited < deadline) {
    const Act slow = at();
    recorded = record_stuck_write(*host_, child.pid, slow.what, slow.value, deadline - waited).has_value();
    answer = wait_for_answer(child, deadline - waited);
  }
  if (!answer) {
    // Closes the line first, so that the child begins nothing after its act in flight.
    child.line.reset();
    const Act late = at();
    auto stuck = record_stuck_write(*host_, child.pid, late.what, late.value);
    {
      const std::lock_guard lock(mutex_);
      late_.push_back({.pid = child.pid, .what = late.what});
    }
    collect_late();
    const std::string state = stuck ? stuck->kernel_state : "state unknown";
    return fail(
        Errc::stuck,
        late.what + ": still in the kernel after " + std::to_string(deadline.count()) + " ms (process " +
            std::to_string(child.pid) + ", " + state + ")",
        late.what.starts_with("read ")
            ? kLockedHint
            : "the device is left alone until the write returns; if it never does, only a reboot helps");
  }
  if (!recorded) return std::move(*answer);
  if (auto forgotten = forget_stuck_write(*host_, child.pid); !forgotten) {
    spdlog::debug("{}", forgotten.error().message);
    child.still_recorded = true;
  }
  return std::move(*answer);
}

Result<std::string> SpawningWriter::judge(Child& child, Answer answer, const std::string& what) {
  if (!answer.number) {
    child.line.reset();
    reap(child.pid);
    return fail(Errc::failed, what + ": the writing process ended without an answer");
  }
  const int number = *answer.number;
  if (number < 0) return fail(Errc::failed, what + ": it ended with status " + std::to_string(-number));
  if (number != 0) return fail(error_from_errno(number, what));
  return std::move(answer.read);
}

Result<> SpawningWriter::write(const std::filesystem::path& relative, std::string_view value,
                               std::chrono::milliseconds deadline) {
  return done(act(write_request(ActKind::write, relative, value), "write /" + relative.string(),
                  std::string(value), deadline));
}

Result<> SpawningWriter::write_in_order(std::span<const AttributeWrite> writes,
                                        const std::function<void(std::size_t)>& begin) {
  auto child = idle_child();
  if (!child) return fail(std::move(child).error());
  Result<> written;
  for (std::size_t first = 0; first < writes.size() && written;) {
    // A request has as many writes as fit, and at least one.
    std::string request = act_request(ActKind::batch, {});
    std::size_t count = 0;
    for (const AttributeWrite& write : writes.subspan(first)) {
      const std::string path = write.path.string();
      if (count > 0 && request.size() + path.size() + write.value.size() > kLongestRun) break;
      request += write_request(write.only_if_unset ? ActKind::write_if_unset : ActKind::write, write.path,
                               write.value);
      request += '\0';
      ++count;
    }
    child->progress.start();
    send_to(child->line, request);
    written = finish(*child, writes.subspan(first, count), [&](std::size_t i) {
      if (begin) begin(first + i);
    });
    first += count;
  }
  keep(std::move(*child));
  return written;
}

// The parent wakes once for all writes, and between two of them only if one is slow.
Result<> SpawningWriter::finish(Child& child, std::span<const AttributeWrite> writes,
                                const std::function<void(std::size_t)>& begin) {
  const auto patience = std::min(slow_, deadline_of_each_);
  std::size_t begun = 0;
  for (;;) {
    const auto at = [&] { return std::min<std::size_t>(child.progress.done(), writes.size() - 1); };
    const std::size_t waited_for = at();
    while (begun <= waited_for) begin(begun++);
    auto answer = wait_for_answer(child, patience);
    if (!answer) {
      child.progress.wait_for_each(true);
      if (at() != waited_for) continue;
      const auto acting = [&] { return Act{.what = act_of(writes[at()]), .value = writes[at()].value}; };
      auto late = late_answer(child, acting, patience, deadline_of_each_);
      if (!late) {
        while (begun <= at()) begin(begun++);
        return fail(std::move(late).error());
      }
      answer = std::move(*late);
    }
    child.progress.wait_for_each(false);
    if (answer->number == 0 && !answer->read.empty()) continue;  // a write of the batch
    const std::size_t last = at();
    while (begun <= last) begin(begun++);
    return done(judge(child, std::move(*answer), act_of(writes[last])));
  }
}

Result<> SpawningWriter::load_module(std::string_view name, std::chrono::milliseconds deadline) {
  auto r = done(act(act_request(ActKind::load_module, name), "load module " + std::string(name),
                    std::string(name), deadline));
  // The child loads libkmod (kmod_library.h) and can answer only with an errno.
  if (!r && r.error().code == std::error_code(ELIBACC, std::generic_category()))
    r.error().hint = "install libkmod2";
  return r;
}

Result<std::string> SpawningWriter::read(const std::filesystem::path& relative,
                                         std::chrono::milliseconds deadline) {
  const std::string what = "read /" + relative.string();
  collect_late();
  {
    const std::lock_guard lock(mutex_);
    const auto earlier = std::ranges::find(late_, what, &Late::what);
    if (earlier != late_.end()) {
      return fail(Errc::stuck,
                  fmt::format("{}: an earlier read has not returned from the kernel (process {})", what,
                              earlier->pid),
                  kLockedHint);
    }
  }
  return act(act_request(ActKind::read, relative.string()), what, {}, deadline);
}

Result<> SpawningWriter::unload_module(std::string_view name, std::chrono::milliseconds deadline) {
  return done(act(act_request(ActKind::unload_module, name), "unload module " + std::string(name),
                  std::string(name), deadline));
}

std::string HostCommand::text() const {
  return fmt::format("{}", fmt::join(words, " "));
}

Result<std::string> SpawningWriter::call(const LibraryCall& call, std::chrono::milliseconds deadline) {
  const std::string arguments = (call.changes ? call.device : "") + '\0' + call.name + '\0' + call.request;
  auto answer = act(act_request(ActKind::call_library, arguments), call.what, call.device, deadline);
  if (!answer && answer.error().code == std::errc::function_not_supported)
    answer.error().code = Errc::unsupported;
  return answer;
}

Result<> SpawningWriter::run(const HostCommand& command, std::chrono::milliseconds deadline) {
  if (command.killed_when_late && command.device.empty())
    return done(run_or_kill(ActKind::run_or_kill, command, deadline));
  return done(act(act_request(ActKind::run, command.device + '\0' + words_of(command)),
                  "run " + command.text(), command.device, deadline));
}

// The child kills the program, since only the program's parent can wait for it.
Result<std::string> SpawningWriter::run_or_kill(ActKind kind, const HostCommand& command,
                                                std::chrono::milliseconds deadline) {
  constexpr std::chrono::seconds kKilling{10};  // a program that survives SIGKILL longer is in the kernel
  const std::string what = "run " + command.text();
  auto ended = act(act_request(kind, std::to_string(deadline.count()) + '\0' + words_of(command)), what, {},
                   deadline + kKilling);
  if (ended || ended.error().code != std::errc::timed_out) return ended;
  return fail(Error{.code = std::make_error_code(std::errc::timed_out),
                    .message = fmt::format("{}: it did not end within {:g} s, and was killed", what,
                                           std::chrono::duration<double>(deadline).count())});
}

Result<std::string> SpawningWriter::transcript(const HostCommand& command,
                                               std::chrono::milliseconds deadline) {
  return run_or_kill(ActKind::transcript, command, deadline);
}

Result<std::string> SpawningWriter::output(const HostCommand& command, std::chrono::milliseconds deadline) {
  if (command.killed_when_late && command.device.empty())
    return run_or_kill(ActKind::output_or_kill, command, deadline);
  return act(act_request(ActKind::output, command.device + '\0' + words_of(command)), "run " + command.text(),
             command.device, deadline);
}

}  // namespace ferry
