// SPDX-License-Identifier: Apache-2.0
// What ferry-fetch is asked for, for a class of a class file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/class_file.h"

namespace ferry {

/// Where credentials of registries are.
struct PullCredentials {
  std::optional<std::filesystem::path> secrets = {};        ///< a folder of read_pull_secret()'s
  std::optional<std::filesystem::path> docker_config = {};  ///< on the host, in place of the class file's
};

/// What registries are told of us for a class: the Secret that it names, where their folder is given, else
/// the credentials that count for all. Empty: nothing. Errors: as read_pull_secret(); the file cannot be
/// read.
Result<std::string> credentials_of(const HostFs& host, const PullCredentials& credentials,
                                   const ClassFile& file, const KataClass& kata);

/// Errors: those of credentials_of(), and of reading the certificates that the class file names.
Result<FetchRequest> fetch_request(const HostFs& host, const PullCredentials& credentials,
                                   const ClassFile& file, const KataClass& kata);

/// What came of a request of that class, as people are told it: where in the class file, and whether a Secret
/// is missing.
Error explained(Error error, const KataClass& kata, const FetchRequest& request);

}  // namespace ferry
