// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/background_scan.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <spdlog/spdlog.h>

namespace ferry::plugin {
namespace {

constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kAtTheEnd = std::chrono::seconds(1);

Result<ResourceSet> scanned_by(Scanner& scanner) {
  try {
    return scanner.scan();
  } catch (const std::exception& error) {  // out of memory, or an error of a library
    return fail(Errc::malformed_host, error.what());
  }
}

}  // namespace

/// The data of a scan, which may outlive the BackgroundScan.
struct BackgroundScan::Shared {
  Shared(const HostFs& whose, ResourceRules by, ReadVgpus read_vgpus)
      : host(whose.root()), rules(std::move(by)), scanner(host, rules, std::move(read_vgpus)) {}

  const HostFs host;
  const ResourceRules rules;
  Scanner scanner;  // used by one scan at a time

  std::mutex mutex;
  std::condition_variable changed;
  bool under_way = false;
  bool over = false;  // the result is no longer needed
};

BackgroundScan::BackgroundScan(const HostFs& host, const ResourceRules& rules, ReadVgpus read_vgpus,
                               EventLoop& loop, Scanned scanned)
    : loop_(loop),
      scanned_(std::move(scanned)),
      shared_(std::make_shared<Shared>(host, rules, std::move(read_vgpus))) {}

BackgroundScan::~BackgroundScan() {
  loop_.cancel(patience_);
  std::unique_lock lock(shared_->mutex);
  shared_->over = true;
  shared_->changed.wait_for(lock, kAtTheEnd, [this] { return !shared_->under_way; });
}

void BackgroundScan::remember(std::span<const FatalErrorsOf> before) {
  for (const auto& one : before) shared_->scanner.remember(one);
}

void BackgroundScan::begin() {
  if (under_way_) {
    once_more_ = true;
    return;
  }
  shared_->under_way = true;  // no other thread exists yet
  const auto scan = [this, shared = shared_] {
    auto found = std::make_shared<Result<ResourceSet>>(scanned_by(shared->scanner));
    const std::scoped_lock lock(shared->mutex);
    shared->under_way = false;
    shared->changed.notify_all();
    if (!shared->over) loop_.post([this, found] { ended(std::move(*found)); });
  };
  try {
    std::thread(scan).detach();
  } catch (const std::system_error& error) {  // no thread is available
    shared_->under_way = false;
    return scanned_(fail(error_from_errno(error.code().value(), "begin a scan of the host")));
  }
  under_way_ = true;
  patience_ = loop_.at(EventLoop::Clock::now() + kPatience, [this] {
    lasts_ = true;
    spdlog::warn(
        "the host does not answer a scan: a reset lasts, or a driver hangs; the lists stay as they are "
        "until it does");
  });
}

void BackgroundScan::ended(Result<ResourceSet> found) {
  under_way_ = false;
  loop_.cancel(patience_);
  if (std::exchange(lasts_, false)) spdlog::info("the host answers a scan again");
  const bool again = std::exchange(once_more_, false);
  scanned_(std::move(found));
  if (again) begin();
}

}  // namespace ferry::plugin
