// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/open_probe.h"

#include <array>
#include <cerrno>
#include <condition_variable>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/unique_fd.h"

namespace ferry {
namespace {

int open_and_close(int fd) {
  std::array<char, 32> path{};  // a string of that length would cost the thread a heap of its own
  *fmt::format_to_n(path.data(), path.size() - 1, "/proc/self/fd/{}", fd).out = '\0';
  const UniqueFd opened(::open(path.data(), O_RDWR | O_CLOEXEC));
  return opened.valid() ? 0 : errno;
}

}  // namespace

struct OpenProbe::Attempt {
  const std::uint32_t group;
  const std::chrono::steady_clock::time_point until;
  UniqueFd node;
  std::optional<int> error;  // once there is an answer
};

struct OpenProbe::State {
  explicit State(Opener how) : opener(std::move(how)) {}

  const Opener opener;
  std::mutex mutex;
  std::condition_variable answered;
  std::map<std::uint32_t, std::shared_ptr<Attempt>> under_way;
  bool warned = false;

  // The thread that stays.
  std::condition_variable called;
  bool idle = false;              // it waits to be called
  std::shared_ptr<Attempt> next;  // what it is called for
  bool over = false;              // nobody will call it again
};

OpenProbe::OpenProbe(const HostFs& host, std::chrono::milliseconds deadline)
    : OpenProbe(host, deadline, open_and_close) {}

OpenProbe::OpenProbe(const HostFs& host, std::chrono::milliseconds deadline, Opener opener)
    : host_(host), deadline_(deadline), state_(std::make_shared<State>(std::move(opener))) {}

OpenProbe::~OpenProbe() {
  const std::scoped_lock lock(state_->mutex);
  state_->over = true;
  state_->called.notify_one();
}

OpenProbe::Answer OpenProbe::ask(std::uint32_t group) const {
  // O_PATH asks no driver, and so cannot hang as the attempt can.
  auto node = host_.open(fmt::format("dev/vfio/{}", group), O_PATH);
  if (!node) return [this, group, error = node.error().code.value()] { return judge(group, error); };
  auto attempt = join(group, std::move(*node));
  if (attempt == nullptr) return [] { return true; };
  return [this, group, attempt = std::move(attempt)] { return wait_for(group, *attempt); };
}

bool OpenProbe::wait_for(std::uint32_t group, const Attempt& attempt) const {
  std::optional<int> error;
  {
    std::unique_lock lock(state_->mutex);
    state_->answered.wait_until(lock, attempt.until, [&] { return attempt.error.has_value(); });
    error = attempt.error;
  }
  return !error || judge(group, *error);
}

/// The attempt under way, or a new one; null when none can be begun.
std::shared_ptr<OpenProbe::Attempt> OpenProbe::join(std::uint32_t group, UniqueFd node) const {
  std::unique_lock lock(state_->mutex);
  if (const auto known = state_->under_way.find(group); known != state_->under_way.end())
    return known->second;
  auto attempt = std::make_shared<Attempt>(Attempt{.group = group,
                                                   .until = std::chrono::steady_clock::now() + deadline_,
                                                   .node = std::move(node),
                                                   .error = {}});
  state_->under_way.emplace(group, attempt);
  if (std::exchange(state_->idle, false)) {
    state_->next = attempt;
    lock.unlock();  // it wants it as soon as it wakes
    state_->called.notify_one();
    return attempt;
  }
  try {
    std::thread(serve, state_, attempt).detach();
  } catch (const std::system_error&) {  // no thread to be had
    state_->under_way.erase(group);
    return nullptr;
  }
  return attempt;
}

void OpenProbe::serve(const std::shared_ptr<State>& state, std::shared_ptr<Attempt> attempt) {
  std::unique_lock lock(state->mutex, std::defer_lock);
  while (attempt != nullptr) {
    const int error = state->opener(attempt->node.get());
    lock.lock();
    attempt->error = error;
    state->under_way.erase(attempt->group);
    state->answered.notify_all();
    attempt.reset();
    if (state->idle || state->next != nullptr) return;  // another one stays already
    state->idle = true;
    state->called.wait(lock, [&] { return state->next != nullptr || state->over; });
    attempt = std::exchange(state->next, nullptr);
    lock.unlock();
  }
}

bool OpenProbe::judge(std::uint32_t group, int error) const {
  if (error != EPERM && error != EACCES) return error == EBUSY;
  {
    const std::scoped_lock lock(state_->mutex);
    if (std::exchange(state_->warned, true)) return false;
  }
  spdlog::warn(
      "/dev/vfio/{} may not be opened: whether a VM still has a device that its pod has given up cannot be "
      "learnt, and such a device is given out again at once; let this container open the nodes of /dev/vfio",
      group);
  return false;
}

}  // namespace ferry
