// SPDX-License-Identifier: Apache-2.0
// Makes the request to ferry-fetch for a class of a class file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/classes/class_file.h"

namespace ferry::kata {

/// Sources of registry credentials.
struct PullCredentials {
  std::optional<std::filesystem::path> secrets = {};        ///< a folder for read_pull_secret()
  std::optional<std::filesystem::path> docker_config = {};  ///< on the host, replaces the class file's
};

/// The credentials for a class's registry: the Secret that the class names, if `secrets` is given, else the
/// general credentials. Empty: none. Errors: as read_pull_secret(); read errors.
Result<std::string> credentials_of(const HostFs& host, const PullCredentials& credentials,
                                   const ClassFile& file, const KataClass& kata);

/// Errors: as credentials_of(), and read errors of the certificates that the class file names.
Result<FetchRequest> fetch_request(const HostFs& host, const PullCredentials& credentials,
                                   const ClassFile& file, const KataClass& kata);

/// Adds the class's place in the class file to an error, and a hint if a Secret is missing.
Error explained(Error error, const KataClass& kata, const FetchRequest& request);

}  // namespace ferry::kata
