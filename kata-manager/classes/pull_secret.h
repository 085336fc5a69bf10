// SPDX-License-Identifier: Apache-2.0
// Reads mounted Kubernetes Secrets with registry credentials: a folder for each, with its keys as files.
#pragma once

#include <filesystem>
#include <string>

#include "common/result.h"

namespace ferry::kata {

/// The Secret `name` in Docker's format: the content of FOLDER/NAME/.dockerconfigjson, or of .dockercfg for
/// the older type. The API server is not asked: the kubelet mounts a Secret in this form, and an
/// administrator can copy one to a node.
///
/// `folder` is a path of this process, not of the host, like a class file's. Errors: Errc::invalid_config:
/// the Secret is missing, has neither key, cannot be read or is empty. No error quotes the Secret.
Result<std::string> read_pull_secret(const std::filesystem::path& folder, const std::string& name);

}  // namespace ferry::kata
