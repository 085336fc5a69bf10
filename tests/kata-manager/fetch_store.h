// SPDX-License-Identifier: Apache-2.0
// A host with a store of artifacts, into which a test fetches.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kata-manager/artifacts/artifact_links.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "tests/kata-manager/fetching.h"

namespace ferry::kata {

/// Fetches the artifact kata-gpu.
class Fetch : public test::Fetching {
 protected:
  std::filesystem::path top() const { return scratch.path() / "opt/artifacts"; }
  std::filesystem::path store() const { return top() / ".ferry/kata-gpu"; }
  /// All but the name of the version that was fetched last.
  std::vector<std::string> in_store() const {
    auto names = test::must(host.list("opt/artifacts/.ferry/kata-gpu"));
    std::erase(names, kPulled);
    return names;
  }
  std::vector<std::string> put_aside() const {
    auto names = test::must(host.list("opt/artifacts"));
    std::erase_if(names, [](const std::string& name) { return !name.starts_with(".kata-gpu.replaced-"); });
    return names;
  }
  /// The target of a link that hostd would make for an artifact of this URL; empty: none.
  Result<std::filesystem::path> link_for(const std::string& url, const std::filesystem::path& version) const {
    const Artifact artifact{
        .name = request.name, .url = url, .folder = "/opt/artifacts/" + request.name, .version = version};
    const auto link = link_to_make(host, request.artifacts_dir, artifact);
    if (!link) return fail(link.error());
    return link->value_or(std::filesystem::path());
  }
  static std::string folder_of(std::string digest) {
    digest[digest.find(':')] = '-';
    return digest;
  }
};

}  // namespace ferry::kata
