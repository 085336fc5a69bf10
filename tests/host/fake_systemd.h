// SPDX-License-Identifier: Apache-2.0
// A peer that answers as systemd does on its private socket, and as much of a bus as it takes: StopUnit and
// StartUnit with a job, then the signal that the job is removed. Runs in a thread of its own and serves one
// connection after the other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <systemd/sd-bus.h>
#include <thread>
#include <vector>

#include "common/unique_fd.h"

namespace ferry::test {

class FakeSystemd {
 public:
  enum class Manner {
    prompt,         ///< the answer, then the job's end
    hasty,          ///< the job's end, then the answer
    refuses,        ///< an error in words of its own
    fails,          ///< the job's result is "failed"
    others_first,   ///< the end of another job first, and that of no job at all
    wrong_answer,   ///< an answer without a job
    hangs_up,       ///< closes instead of answering
    keeps_the_job,  ///< an answer, and then nothing
    silent,         ///< takes connections and says nothing, not even who it is
  };

  struct Order {
    std::string member;         ///< "RestartUnit"
    std::string unit;           ///< "a.service"
    std::uint32_t process = 0;  ///< of StartTransientUnit: who shall be in it
  };
  /// Does what an order is for, in our thread. False: the job's result is "failed".
  using Job = std::function<bool(const Order& order)>;

  /// Listens at `socket`, whose directory exists. `job`: for Manner::prompt; without it nothing is done.
  FakeSystemd(const std::filesystem::path& socket, Manner manner, Job job = {});
  FakeSystemd(const FakeSystemd&) = delete;
  FakeSystemd& operator=(const FakeSystemd&) = delete;
  FakeSystemd(FakeSystemd&&) = delete;
  FakeSystemd& operator=(FakeSystemd&&) = delete;
  ~FakeSystemd();

  /// "StopUnit a.service replace", in the order in which they came.
  std::vector<std::string> orders() const;

 private:
  void serve();
  void serve_one(UniqueFd connection);
  int answer(sd_bus_message* message);
  static int on_message(sd_bus_message* message, void* self, sd_bus_error* error);

  Manner manner_;
  Job job_;
  UniqueFd listener_;
  UniqueFd stop_;
  bool hung_up_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> orders_;
  std::thread thread_;
};

}  // namespace ferry::test
