// SPDX-License-Identifier: Apache-2.0
#include "hostfs/in_flight_writes.h"

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <optional>
#include <sys/file.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "common/file_status.h"
#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "hostfs/host_writer.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/stuck_writes.h"

namespace ferry {
namespace {

constexpr const char* kDirectory = "run/ferry/hostd/acts";
constexpr std::chrono::milliseconds kPollPeriod{20};
// Room for the longest path and for the recorded part of a value.
constexpr std::size_t kSize = 8192;
constexpr std::size_t kLongestValue = 1024;

// wait_for_acts() removes a file without a lock, also one that its process has opened and not yet locked.
bool is_linked(const UniqueFd& file) {
  const auto status = file_status(file.get());
  return status && status->st_nlink > 0;
}

struct Act {
  NumberedProcess by;
  std::string act;
  std::string value;
};

// "pid:[4026531836]", or "" if it could not be read. The text becomes part of a file name, so only the
// kernel's characters and length are accepted. ABI: fs/nsfs.c, `%s:[%u]`.
bool is_pid_namespace(std::string_view text) {
  constexpr std::string_view kBegin = "pid:[";
  constexpr std::size_t kLongestNumber = 10;
  if (text.empty()) return true;
  if (!text.starts_with(kBegin) || !text.ends_with(']')) return false;
  text = text.substr(kBegin.size(), text.size() - kBegin.size() - 1);
  return !text.empty() && text.size() <= kLongestNumber &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool tells_of_nothing(std::string_view text) {
  return text.empty() || text.find('\n') == text.size() - 1;
}

std::optional<Act> parse(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto line = text.find('\n');
  const auto space = text.find(' ');
  const auto end_of_act = text.find('\n', std::min(line, text.size() - 1) + 1);
  if (space > line || end_of_act == std::string_view::npos) return std::nullopt;
  Act out{.by = {.pid = 0, .pid_namespace = std::string(text.substr(space + 1, line - space - 1))},
          .act = std::string(text.substr(line + 1, end_of_act - line - 1)),
          .value = std::string(text.substr(end_of_act + 1))};
  out.by.pid = whole_number<pid_t>(text.substr(0, space)).value_or(0);
  if (out.by.pid <= 0 || out.act.empty() || !is_pid_namespace(out.by.pid_namespace)) return std::nullopt;
  return out;
}

// The file's text up to the first NUL; "" if its process has ended.
Result<std::string> text_of(HostFs& host, const std::filesystem::path& path) {
  const auto file = host.open(path, O_RDONLY | O_NONBLOCK);
  if (!file) {
    if (is_gone(file.error())) return std::string();
    return fail(Error(file.error()).during("look what an earlier run is still at"));
  }
  if (::flock(file->get(), LOCK_SH | LOCK_NB) == 0) {
    if (auto removed = host.remove_file(path); !removed) return fail(std::move(removed).error());
    return std::string();
  }
  auto text = host.read_file(path);
  if (!text) return is_gone(text.error()) ? Result<std::string>() : text;  // its process ended meanwhile
  text->resize(std::min(text->size(), text->find('\0')));
  return text;
}

}  // namespace

void InFlightWrite::open(int how_to_lock) {
  const NumberedProcess self{.pid = ::getpid(), .pid_namespace = own_pid_namespace(host_).value_or("")};
  path_ = std::filesystem::path(kDirectory) / file_name_of(self);
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    if (!host_.make_directory(kDirectory)) return;
    auto file = host_.open(path_, O_RDWR | O_CREAT, 0600);
    if (!file || ::flock(file->get(), how_to_lock) != 0) return;
    if (!is_linked(*file)) continue;
    file_ = std::move(*file);
    // Allocates all blocks now: if the file system were full later, a store to the mapping would raise
    // SIGBUS.
    if (::ftruncate(file_.get(), 0) != 0 || ::posix_fallocate(file_.get(), 0, kSize) != 0) return;
    void* const memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (memory == MAP_FAILED) return;
    text_ = {static_cast<char*>(memory), kSize};
    // The first line, written before any act. is_done_by() overwrites the number in place.
    const std::string first = fmt::format("{:>10} {}\n", self.pid, self.pid_namespace);
    std::ranges::copy(first, text_.begin());
    act_ = text_.subspan(first.size());
    return;
  }
}

void InFlightWrite::close() {
  if (!text_.empty()) ::munmap(text_.data(), text_.size());
  text_ = act_ = {};
  file_.reset();
}

InFlightWrite::~InFlightWrite() {
  if (file_.valid()) (void)host_.remove_file(path_);
  close();
}

void InFlightWrite::prepare() {
  if (file_.valid() && !is_linked(file_)) close();
  if (!file_.valid()) open(LOCK_EX);
}

void InFlightWrite::try_prepare() {
  if (!file_.valid()) open(LOCK_EX | LOCK_NB);
}

void InFlightWrite::begin(std::string_view act, std::string_view value) {
  value = value.substr(0, kLongestValue);
  if (act.empty() || act.size() + value.size() + 2 > act_.size()) return;
  // The first byte is stored last: until then readers see no act.
  auto end = std::ranges::copy(act.substr(1), act_.begin() + 1).out;
  *end++ = '\n';
  end = std::ranges::copy(value, end).out;
  *end = '\0';
  std::atomic_ref(act_.front()).store(act.front(), std::memory_order_release);
}

void InFlightWrite::is_done_by(int pid) {
  if (!text_.empty()) fmt::format_to(text_.begin(), "{:>10}", pid);
}

void InFlightWrite::end() {
  if (!act_.empty()) std::atomic_ref(act_.front()).store('\0', std::memory_order_release);
}

Result<> wait_for_acts(HostFs& host, std::chrono::milliseconds patience) {
  if (auto cleared = clear_ended_records(host); !cleared) return cleared;
  const auto names = names_in(host, kDirectory);
  if (!names) return fail(Error(names.error()).during("look what earlier runs are still at"));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const std::string& name : *names) {
    const auto path = std::filesystem::path(kDirectory) / name;
    for (;;) {
      const auto text = text_of(host, path);
      if (!text) return fail(text.error());
      if (tells_of_nothing(*text)) break;
      auto act = parse(*text);
      if (act && is_recorded(host, act->by)) break;  // recorded as stuck: waiting is over
      if (std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(kPollPeriod);
        continue;
      }
      if (!act)
        return fail(Errc::stuck,
                    "/" + path.string() + " records a write of an earlier run that has not returned",
                    "wait for its process to end; only a reboot helps if that never comes");
      const auto left = std::max(kWriteDeadline - patience, std::chrono::milliseconds(0));
      auto recorded = record_stuck_act(host, act->by, std::move(act->act), std::move(act->value), left);
      if (!recorded) return fail(std::move(recorded).error());
      // If the act ended just before the record was written, its process found no record to remove.
      if (const auto since = text_of(host, path); since && tells_of_nothing(*since))
        if (auto forgotten = forget_stuck_act(host, act->by); !forgotten) return forgotten;
      break;
    }
  }
  return {};
}

}  // namespace ferry
