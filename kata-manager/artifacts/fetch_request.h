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

// Reads mounted Kubernetes Secrets with registry credentials: a folder for each, with its keys as files.

/// The Secret `name` in Docker's format: the content of FOLDER/NAME/.dockerconfigjson, or of .dockercfg for
/// the older type. The API server is not asked: the kubelet mounts a Secret in this form, and an
/// administrator can copy one to a node.
///
/// `folder` is a path of this process, not of the host, like a class file's. Errors: Errc::invalid_config:
/// the Secret is missing, has neither key, cannot be read or is empty. No error quotes the Secret.
Result<std::string> read_pull_secret(const std::filesystem::path& folder, const std::string& name);

/// Sources of registry credentials.
struct PullCredentials {
  std::optional<std::filesystem::path> secrets = {};        ///< a folder for read_pull_secret()
  std::optional<std::filesystem::path> docker_config = {};  ///< on the host, replaces the class file's
};

/// The credentials for a class's registry: the Secret that the class names, if `secrets` is given, else the
/// general credentials. Empty: none. Errors: as read_pull_secret(); read errors.
Result<std::string> credentials_of(const HostFs& host, const PullCredentials& credentials,
                                   const ClassFile& file, const KataClass& kata);

/// Errors: as credentials_of(), and read errors of the certificates that the class file names;
/// Errc::invalid_config: that file has none.
Result<FetchRequest> fetch_request(const HostFs& host, const PullCredentials& credentials,
                                   const ClassFile& file, const KataClass& kata);

/// Adds the class's place in the class file to an error, and a hint if a Secret is missing.
Error explained(Error error, const KataClass& kata, const FetchRequest& request);

}  // namespace ferry::kata
