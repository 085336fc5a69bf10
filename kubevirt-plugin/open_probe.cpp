// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/open_probe.h"

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
  const UniqueFd opened(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDWR | O_CLOEXEC));
  return opened.valid() ? 0 : errno;
}

}  // namespace

struct OpenProbe::Attempt {
  std::chrono::steady_clock::time_point until;
  std::optional<int> error;  // once there is an answer
};

struct OpenProbe::State {
  explicit State(Opener how) : opener(std::move(how)) {}

  const Opener opener;
  std::mutex mutex;
  std::condition_variable answered;
  std::map<std::uint32_t, std::shared_ptr<Attempt>> under_way;
  bool warned = false;
};

OpenProbe::OpenProbe(const HostFs& host, std::chrono::milliseconds deadline)
    : OpenProbe(host, deadline, open_and_close) {}

OpenProbe::OpenProbe(const HostFs& host, std::chrono::milliseconds deadline, Opener opener)
    : host_(host), deadline_(deadline), state_(std::make_shared<State>(std::move(opener))) {}

bool OpenProbe::is_open(std::uint32_t group) const {
  // O_PATH asks no driver, and so cannot hang as the attempt can.
  auto node = host_.open(fmt::format("dev/vfio/{}", group), O_PATH);
  if (!node) return judge(group, node.error().code.value());
  const auto attempt = join(group, std::move(*node));
  if (attempt == nullptr) return true;
  std::optional<int> error;
  {
    std::unique_lock lock(state_->mutex);
    state_->answered.wait_until(lock, attempt->until, [&] { return attempt->error.has_value(); });
    error = attempt->error;
  }
  return !error || judge(group, *error);
}

/// The attempt under way, or a new one; null when none can be begun.
std::shared_ptr<OpenProbe::Attempt> OpenProbe::join(std::uint32_t group, UniqueFd node) const {
  const std::scoped_lock lock(state_->mutex);
  if (const auto known = state_->under_way.find(group); known != state_->under_way.end())
    return known->second;
  auto attempt = std::make_shared<Attempt>();
  attempt->until = std::chrono::steady_clock::now() + deadline_;
  try {
    std::thread([state = state_, attempt, group, node = std::move(node)] {
      const int error = state->opener(node.get());
      const std::scoped_lock done(state->mutex);
      attempt->error = error;
      state->under_way.erase(group);
      state->answered.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // no thread to be had
    return nullptr;
  }
  state_->under_way.emplace(group, attempt);
  return attempt;
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
