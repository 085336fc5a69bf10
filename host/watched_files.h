// SPDX-License-Identifier: Apache-2.0
// Reports changes of the files that lead to a round of hostd.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"

namespace ferry::host {

/// Belongs to the loop's thread.
class WatchedFiles : Pinned {
 public:
  /// `files` are relative to the host's root, and need not exist. `changed` is called from the loop, `failed`
  /// for each folder that cannot be watched. `loop` and `host` must outlive this object.
  WatchedFiles(EventLoop& loop, const HostFs& host, std::vector<std::filesystem::path> files,
               std::function<void()> changed, std::function<void(const Error&)> failed)
      : loop_(loop),
        host_(host),
        files_(std::move(files)),
        changed_(std::move(changed)),
        failed_(std::move(failed)) {}

  /// Also watches this policy file, and its targets if it is a link, from the next watch() on. Absent: none.
  void set_policy(std::optional<std::filesystem::path> policy) { policy_ = std::move(policy); }

  /// Watches the folders of the present files and no others. True: a folder was added.
  bool watch();

  /// The next watch() opens this folder anew.
  void forget(const std::filesystem::path& folder);

 private:
  struct Folder {
    DirectoryWatch watch;
    std::set<std::string> names;  // the files that matter
  };
  using Names = std::map<std::filesystem::path, std::set<std::string>>;

  void add_policy(Names& names, std::filesystem::path file) const;
  void read(const std::filesystem::path& folder);

  EventLoop& loop_;
  const HostFs& host_;
  const std::vector<std::filesystem::path> files_;
  const std::function<void()> changed_;
  const std::function<void(const Error&)> failed_;
  std::map<std::filesystem::path, Folder> folders_;
  std::optional<std::filesystem::path> policy_;  // the file that desired.json named last
};

}  // namespace ferry::host
