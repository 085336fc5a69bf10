// SPDX-License-Identifier: Apache-2.0
// Credentials of registries as Kubernetes hands them out: Secrets, each a folder with its keys as files.
#pragma once

#include <filesystem>
#include <string>

#include "common/result.h"

namespace ferry {

/// What the Secret `name` says, in Docker's form: the content of FOLDER/NAME/.dockerconfigjson, or of
/// .dockercfg where it is one of the older type. Nobody asks the API server: the kubelet mounts a Secret so,
/// and who copies one to a node by hand lays it there.
///
/// `folder` is this program's own, not the host's, as a class file is.
/// Errors: Errc::invalid_config: it is not there, has none of these keys, cannot be read or is empty. No
/// error has a word of it.
Result<std::string> read_pull_secret(const std::filesystem::path& folder, const std::string& name);

}  // namespace ferry
