// SPDX-License-Identifier: Apache-2.0
// A host whose Kata runtimes a keeper installs.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "api/files.h"
#include "kata-manager/controller/kata_keeper.h"
#include "tests/kata-manager/faulty_host.h"
#include "tests/kata-manager/gpu_artifact.h"
#include "tests/kata-manager/predicted_daemon.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {

inline constexpr const char* kOneClass = "- {name: kata-a, artifacts: {url: \"file:///srv/gpu\"}}\n";
inline constexpr const char* kPulledClass =
    "- {name: kata-a, artifacts: {url: \"registry.example/a:1\", allowHostPaths: [/usr/bin/qemu]}}\n";
inline constexpr const char* kNewerClass =
    "- {name: kata-a, artifacts: {url: \"registry.example/a:2\", allowHostPaths: [/usr/bin/qemu]}}\n";
inline constexpr const char* kTwoClasses =
    "- {name: kata-a, artifacts: {url: \"file:///srv/gpu\"}}\n"
    "- {name: kata-b, artifacts: {url: \"file:///srv/gpu\"}}\n";

/// A host, its daemon, and who keeps it.
struct KeptNode {
  KeptNode() {
    test::add_gpu_artifact(scratch, {"kata-a", "kata-b"});
    scratch.file(test::kMain, test::kMainText);
    begin();
  }
  void begin() {
    daemon = std::make_unique<test::PredictedDaemon>(host, release);
    keeper = std::make_unique<KataKeeper>(
        KataKeeper::Uses{
            .host = &host,
            .writer = &writer,
            .asked = daemon.get(),
            .runtime_for = [this](const ClassFile& file) { return runtime_for(file); },
            .devices = [this] { return Result<KataDevices>(KataDevices{.gpus = 1, .mode = by_registers}); }},
        KataKeeper::Pauses{.first = std::chrono::seconds(10),
                           .longest = std::chrono::seconds(40),
                           .lock = std::chrono::milliseconds(0),
                           .proof = std::chrono::milliseconds(0)});
  }
  Result<KataRuntime> runtime_for(const ClassFile& file) const {
    KataRuntime out;
    out.found_runtime.place = test::must(runtime_place("containerd"));
    out.found_runtime.release = release;
    out.asked = std::make_unique<test::AskedDaemon>(*daemon);
    if (file.restart.how != RuntimeRestart::How::none)
      out.control = std::make_unique<test::RestartOfDaemon>(*daemon);
    return out;
  }
  /// The files of an artifact, in another folder.
  void add_files(const std::string& folder) const {
    for (const char* const file : {"configuration.toml", "vmlinuz", "image"})
      scratch.file(folder + "/" + file, text(std::string("srv/gpu/") + file));
  }
  /// An artifact as the agent's fetch leaves it in the store.
  void pull(const std::string& name, const std::string& version, const std::string& url) const {
    const std::string store = "opt/art/.ferry/" + name + "/";
    add_files(store + version);
    scratch.file(store + version + ".json",
                 R"({"version": 1, "url": ")" + url +
                     R"(", "digest": "sha256:aa", "configuration": "configuration.toml", "files": [)"
                     R"({"path": "configuration.toml"}, {"path": "image"}, {"path": "vmlinuz"}]})");
    scratch.file(store + "pulled", version);
  }
  std::string link_of(const std::string& name) const {
    return host.link_target("opt/art/" + name).value_or("there is none");
  }

  void want(const std::string& list, std::vector<std::string> classes, std::set<std::string> unlabelled = {},
            const std::string& more = "loadModules: false\n") {
    desired = {
        .generation = desired.generation + 1,
        .config = {.file = {},
                   .text = "version: v2\nartifactsDir: /opt/art\n" + more + "runtimeClasses:\n" + list},
        .classes = std::move(classes),
        .permitted = true,
        .unlabelled = std::move(unlabelled)};
    write_desired();
  }
  void write_desired() const { scratch.file(api::kDesiredClassesFile, desired_classes_text(desired)); }
  KataKeeper::Round round() const { return keeper->round(now); }
  /// Rounds as they are run, until none asks to come again at once.
  HandlersFile settle() const {
    for (int i = 0; i < 5; ++i) {
      const auto again = round().again;
      if (!again || *again > now) break;
    }
    return said();
  }
  HandlersFile said() const { return test::must(read_handlers_file(text(api::kReadyHandlersFile))); }
  std::optional<OtherHandler> said_of(const std::string& name) const {
    const auto file = said();
    const auto other = std::ranges::find(file.others, name, &OtherHandler::name);
    return other == file.others.end() ? std::nullopt : std::optional(*other);
  }
  std::string why_of(const std::string& name) const {
    const auto other = said_of(name);
    return other ? other->why : "(nothing is said of it)";
  }
  bool says(const std::string& name, HandlerState state) const {
    const auto other = said_of(name);
    return other && other->state == state;
  }
  std::string text(const std::filesystem::path& relative) const {
    return host.read_file(relative).value_or("there is none");
  }
  /// All that is on the host but what is said.
  std::string everything() const {
    std::string out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.path())) {
      const auto inside = entry.path().lexically_relative(scratch.path());
      if (inside.string().starts_with("run")) continue;
      out += inside.string() + (entry.is_regular_file() ? ": " + text(inside) : "") + "\n";
    }
    return out;
  }

  ContainerdRelease release = test::kRelease;
  test::ScratchDirectory scratch;
  test::FaultyHost host{scratch.path()};
  test::ModuleWriter writer;
  DesiredClasses desired;
  ConfidentialMode by_registers;  ///< mode of the host's GPUs
  KataKeeper::Clock::time_point now{std::chrono::seconds(1000)};
  std::unique_ptr<test::PredictedDaemon> daemon;
  std::unique_ptr<KataKeeper> keeper;
};

class KataKeeperTest : public testing::Test, protected KeptNode {};

}  // namespace ferry::kata
