// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "kata-manager/fetch/fetch.h"
#include "tests/kata-manager/registry_front.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// A host without artifacts, and a registry that has some.
class Fetching : public testing::Test {
 protected:
  explicit Fetching(std::unique_ptr<RegistryStore> behind = std::make_unique<MemoryStore>())
      : registry(std::move(behind)) {
    request.name = "kata-gpu";
    request.artifacts_dir = "/opt/artifacts";
    request.url = registry.reference();
    request.patience.slow = std::chrono::seconds(20);
    world.pause = [this](std::chrono::milliseconds time) { pauses.push_back(time.count()); };
  }

  Result<kata::Artifact> fetch() { return kata::fetch_here(host, request, world); }
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
  kata::FetchWorld world;
  std::vector<std::int64_t> pauses;  // in milliseconds
};

}  // namespace ferry::test
