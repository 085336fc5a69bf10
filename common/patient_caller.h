// SPDX-License-Identifier: Apache-2.0
// Calls that may never return, waited for with a deadline.
//
// For reads whose wait in the kernel a signal can end: the thread that such a read keeps is left behind and
// goes with the process. What waits where no signal reaches it (a device's lock) would keep the process too:
// that is the host writer's (host_writer.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace ferry {

class PatientCaller {
 public:
  explicit PatientCaller(std::chrono::milliseconds patience) : patience_(patience) {}
  PatientCaller(const PatientCaller&) = delete;
  PatientCaller& operator=(const PatientCaller&) = delete;
  PatientCaller(PatientCaller&&) = delete;
  PatientCaller& operator=(PatientCaller&&) = delete;
  ~PatientCaller();

  /// What `job` returns; absent when it has not by then, or no thread could be had. A job that is late goes
  /// on alone and may outlive this object and the caller: it must own all that it works with, and not throw.
  template <typename T>
  std::optional<T> call(std::function<T()> job) {
    const auto result = std::make_shared<std::optional<T>>();
    if (!run([result, job = std::move(job)] { *result = job(); })) return std::nullopt;
    return std::move(*result);
  }

 private:
  struct Desk;
  bool run(std::function<void()> job);

  std::chrono::milliseconds patience_;
  std::shared_ptr<Desk> desk_;  // shared with the thread that works now
};

}  // namespace ferry
