// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/claim_request.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry::test {

/// A hostd at its real socket. It prepares each claim that it is asked for, and keeps it until it is undone.
class FakeHostd : Pinned {
 public:
  using Answer = Result<std::vector<api::PreparedDevice>>;
  /// Replaces the answer; absent: as usual. It runs on a thread of its own, so it may wait.
  using Hook = std::function<std::optional<Answer>(const api::ClaimRequest&)>;

  /// Listens at `socket`, an absolute path, whose folder is made.
  explicit FakeHostd(const std::filesystem::path& socket);
  ~FakeHostd();

  void answer_by(Hook hook);
  /// Sends this text in place of each answer; empty: closes the connection without an answer.
  void send_text(std::optional<std::string> text);

  /// All requests so far.
  std::vector<api::ClaimRequest> requests() const;
  std::size_t count(api::ClaimAction action) const;
  /// The claims that have devices, with the number of times that devices were made for them.
  std::map<std::string, int> claims() const;

 private:
  void accept_all();
  void serve(UniqueFd connection);
  Answer usual(const api::ClaimRequest& request);

  UniqueFd socket_;
  UniqueFd stop_;
  mutable std::mutex mutex_;
  Hook hook_;
  std::optional<std::string> text_;
  std::vector<api::ClaimRequest> requests_;
  std::map<std::string, std::vector<api::PreparedDevice>> prepared_;
  std::map<std::string, int> made_;
  std::vector<std::jthread> threads_;
  std::jthread acceptor_;
};

/// Lets a hook wait until a test goes on.
class Gate {
 public:
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

}  // namespace ferry::test
