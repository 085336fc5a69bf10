// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "kata-manager/artifacts/fetch.h"
#include "tests/kata-manager/registry_front.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// A host without artifacts, and a registry that has some.
class Fetching : public testing::Test {
 protected:
  Fetching() {
    // Skopeo runs as a user without rights.
    std::filesystem::permissions(scratch.path(), std::filesystem::perms(0755));
    request.name = "kata-gpu";
    request.artifacts_dir = "/opt/artifacts";
    request.url = registry.reference();
    request.retries = 0;
  }

  Result<kata::Artifact> fetch() { return kata::fetch_here(host, request); }
  /// Why it is not had; no error if it is.
  Error refusal() {
    auto got = fetch();
    return got ? Error{} : std::move(got).error();
  }

  static std::string text_in(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string content(const std::filesystem::path& relative) const {
    return text_in(scratch.path() / relative);
  }
  std::string seen(const std::string& name) const { return content("opt/artifacts/kata-gpu/" + name); }

  static std::vector<ImageLayer> layers(const std::string& guest = "guest") {
    return {{.content = guest, .title = "guest.img"},
            {.content = "[hypervisor.qemu]\nimage = \"/x/guest.img\"\n", .title = "configuration.toml"}};
  }

  ScratchDirectory scratch;
  HostFs host{scratch.path()};
  RegistryFront registry;
  kata::FetchRequest request;
};

}  // namespace ferry::test
