// SPDX-License-Identifier: Apache-2.0
// The folders of the host that an agent, or `ferry dra`, of another user than root may write. hostd makes
// them, and gives each to the group of that process: the owner of a folder may give it to one of its own
// groups without any capability (docs/adr/0031).
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::host {

enum class Giving {
  folder,  ///< what is in it stays as it is
  /// A folder of Kata's artifacts: the lock in it and Ferry's store `.ferry`, both made where they are
  /// missing. A lock that has a second name is removed and made anew. The folder itself stays root's: hostd
  /// alone makes the links of classes, and an administrator's folders beside them stay the administrator's.
  tree_top,
  /// Also what is in the store: each folder and each regular file of this process's user that has one name.
  /// In Given::errors is what the group may write beside the store, and what another user than root owns
  /// there.
  tree,
};

struct Given {
  std::size_t changed = 0;  ///< files and folders; none where all are as they should be
  /// The group could write the artifacts' folder itself, and no longer can.
  bool taken = false;
  /// The first of those that kept something in a tree from being given. All else is given.
  std::vector<Error> errors = {};
};

/// Gives the folder, or what Ferry has in it, to the group, which may then write it; makes a missing folder.
/// New files in it get the group, too (set-group-ID). No symbolic link is followed.
///
/// Errors: Errc::refused for a folder that is a symbolic link; EPERM where this process does not own the
/// folder, or is not in the group. In Given::errors likewise, and Errc::refused for a tree above the limits.
Result<Given> give_to_group(const HostFs& host, const std::filesystem::path& folder, gid_t group,
                            Giving giving);

class AgentFolders {
 public:
  /// All paths are relative to the host's root.
  struct Settings {
    gid_t group = 0;
    std::filesystem::path lock;  ///< made empty where it is missing, so that the agent can lock it
    std::vector<std::filesystem::path> folders;
    std::vector<std::filesystem::path> trees;
    /// The shortest time from a scan of a tree that met an error to the next one.
    std::chrono::milliseconds poll_period = std::chrono::minutes(1);
    std::string whose = "the agent's";  ///< the group, for the log
  };

  /// The host must outlive this.
  AgentFolders(const HostFs& host, Settings settings) : host_(host), settings_(std::move(settings)) {}

  /// Gives the folders to the group, and logs what it has changed; an error is logged once. A tree is looked
  /// through until a scan has met no error.
  void give();

 private:
  using Clock = std::chrono::steady_clock;

  /// False: there was an error.
  bool give(const std::filesystem::path& folder, Giving giving);
  void give_tree(const std::filesystem::path& folder);
  Result<> give_lock() const;
  void warn_once(const Error& error);

  const HostFs& host_;
  const Settings settings_;
  /// The time of each tree's next scan; absent: the last scan met no error, and no further one is needed.
  std::map<std::filesystem::path, std::optional<Clock::time_point>> next_scans_;
  std::set<std::string> warned_;
};

}  // namespace ferry::host
