// SPDX-License-Identifier: Apache-2.0
#include "cli/options/plugin_options.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>

#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/plugin.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

/// The variables of the environment that it goes by, as the test wants them.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_)
      ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  Environment(Environment&&) = delete;
  Environment& operator=(Environment&&) = delete;
  ~Environment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
  }

 private:
  const std::map<std::string, std::string> variables_;
};

PluginVerbOptions parsed(std::vector<std::string> words) {
  CLI::App app;
  PluginVerbOptions serving;
  add_plugin_options(app, serving);
  std::ranges::reverse(words);  // as the library takes them
  app.parse(words);
  return serving;
}

plugin::PluginOptions options_for(const PluginVerbOptions& serving) {
  const test::ScratchDirectory root;
  Session session;
  session.host = std::make_unique<HostFs>(root.path());
  auto options = plugin_options(session, serving);
  EXPECT_TRUE(options) << options.error().message;
  return std::move(*options);
}

TEST(PluginOptions, ServeKubeVirtFromTheKubeletsOwnDirectory) {
  const auto options = options_for({});
  EXPECT_EQ(options.kubelet_directory, "var/lib/kubelet/device-plugins");
  EXPECT_FALSE(options.plugin_watcher);
  EXPECT_TRUE(options.rules.kubevirt);
  EXPECT_FALSE(options.rules.kata);
  EXPECT_FALSE(options.cdi_names);
  EXPECT_FALSE(options.pod_resources.names);
  EXPECT_EQ(options.pod_resources.own_pod, "");
  EXPECT_EQ(options.vgpu_placement, plugin::VgpuPlacement::pack);
}

TEST(PluginOptions, GoByTheCommandLine) {
  const auto options = options_for(parsed(
      {"--plugin-watcher", "--mode", "kata", "--vgpu-placement", "spread", "--cdi-names", "--name-pods"}));
  EXPECT_EQ(options.kubelet_directory, "var/lib/kubelet/plugins_registry");
  EXPECT_TRUE(options.plugin_watcher);
  EXPECT_FALSE(options.rules.kubevirt);
  EXPECT_TRUE(options.rules.kata);
  EXPECT_EQ(options.rules.kata_names.gpu_alias, "pgpu");
  EXPECT_EQ(options.rules.kata_names.switch_alias, "nvswitch");
  EXPECT_TRUE(options.cdi_names);
  EXPECT_TRUE(options.pod_resources.names);
  EXPECT_EQ(options.vgpu_placement, plugin::VgpuPlacement::spread);
  const auto both = options_for(parsed({"--mode", "both", "--kubelet-directory", "/elsewhere"}));
  EXPECT_EQ(both.kubelet_directory, "elsewhere");
  EXPECT_FALSE(both.plugin_watcher);
  EXPECT_TRUE(both.rules.kubevirt);
  EXPECT_FALSE(both.cdi_names);
  EXPECT_FALSE(both.pod_resources.names);
}

// Each switch by itself: two of the same type that had changed places would be seen.
TEST(PluginOptions, AreEachSwitchedAlone) {
  EXPECT_TRUE(parsed({"--cdi-names"}).cdi_names);
  EXPECT_FALSE(parsed({"--cdi-names"}).name_pods);
  EXPECT_TRUE(parsed({"--name-pods"}).name_pods);
  EXPECT_FALSE(parsed({"--name-pods"}).plugin_watcher);
  EXPECT_EQ(parsed({"--companions"}).naming.companions, plugin::Companions::devices);
  EXPECT_EQ(parsed({"--no-companion-places"}).naming.companions, plugin::Companions::unasked);
  EXPECT_EQ(parsed({"--companion-places"}).naming.companions, plugin::Companions::places);
  for (const auto* const other : {"--companions", "--no-companion-places"})
    EXPECT_THROW(parsed({"--companion-places", other}), CLI::ParseError) << other;
  EXPECT_THROW(parsed({"--companions", "--no-companion-places"}), CLI::ParseError);
  EXPECT_THROW(parsed({"--mode", "vm"}), CLI::ParseError);
}

// As NVIDIA's plugin serves VMs that have a GPU and its audio.
TEST(PluginOptions, LetVmsAskForTheirGpusAudioUnlessSetOtherwise) {
  const auto companions = [](const std::vector<std::string>& arguments) {
    return options_for(parsed(arguments)).rules.companions;
  };
  EXPECT_EQ(companions({}), plugin::Companions::places);
  EXPECT_EQ(companions({"--companion-places"}), plugin::Companions::places) << "as it had to be said before";
  EXPECT_EQ(companions({"--companions"}), plugin::Companions::devices);
  EXPECT_EQ(companions({"--no-companion-places"}), plugin::Companions::unasked);
}

TEST(PluginOptions, TakeNamesFromTheEnvironment) {
  const Environment given({{"P_GPU_ALIAS", ""},
                           {"NVSWITCH_ALIAS", "fabric"},
                           {"POD_NAME", "ferry-x"},
                           {"POD_NAMESPACE", "gpus"}});
  PluginVerbOptions serving;
  serving.mode = "both";
  const auto options = options_for(serving);
  EXPECT_EQ(options.rules.kata_names.gpu_alias, "") << "empty is one name for each model";
  EXPECT_EQ(options.rules.kata_names.switch_alias, "fabric");
  EXPECT_EQ(options.pod_resources.own_pod, "gpus/ferry-x");
}

TEST(PluginOptions, ReadTheDesiredStateForLabelsAsGoReadsIt) {
  PluginVerbOptions serving;
  serving.mode = "kata";
  EXPECT_FALSE(asks_for_labels(serving));
  const auto asks = [&](const std::string& value) {
    const Environment given(std::map<std::string, std::string>{{"ENABLE_GFD", value}});
    return asks_for_labels(serving);
  };
  for (const char* const yes : {"1", "t", "T", "TRUE", "true", "True"}) EXPECT_TRUE(asks(yes)) << yes;
  for (const char* const no : {"", "0", "f", "F", "FALSE", "false", "False", "yes", "tRUE"})
    EXPECT_FALSE(asks(no)) << no;
  serving.mode = "kubevirt";
  EXPECT_FALSE(asks("1")) << "NVIDIA's plugin for KubeVirt does not know it";
}

}  // namespace
}  // namespace ferry::cli
