// SPDX-License-Identifier: Apache-2.0
#include "agent/agent_options.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>

namespace ferry::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Parsed {
  agent::AgentProgramOptions options;
  std::vector<std::string> words;
  std::string for_the_server;
};

Parsed parse(std::vector<std::string> words) {
  CLI::App app;
  Parsed out;
  const agent::AgentOptionList list(app, out.options);
  std::ranges::reverse(words);  // as the library takes them
  app.parse(words);
  out.words = list.words();
  out.for_the_server = list.given_for_the_server();
  return out;
}

std::vector<std::string> names() {
  CLI::App app;
  agent::AgentProgramOptions options;
  const agent::AgentOptionList list(app, options);
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options())
    if (option != app.get_help_ptr()) out.push_back(option->get_name());
  return out;
}

/// As it would be given; never what holds without it.
std::vector<std::string> given(const std::string& name) {
  static const std::map<std::string, std::vector<std::string>> kSpecial = {
      {"--among-others", {"--among-others"}},
      {"--default-workload", {"--default-workload=container"}},
      {"--drain", {"--drain"}},
      {"--drain-timeout", {"--drain", "--drain-timeout=90s"}},
      {"--feature-labels", {"--feature-labels=node"}},
      {"--feature-owner", {"--feature-labels=nfd", "--feature-owner=-of a test"}},
      {"--max-unavailable", {"--max-unavailable=0"}},
      {"--metrics-certificate", {"--metrics-address=-", "--metrics-certificate=-of a test"}},
      {"--metrics-key", {"--metrics-address=-", "--metrics-key=-of a test"}},
      {"--metrics-token-file", {"--metrics-address=-", "--metrics-token-file=-of a test"}},
      {"--not-confidential", {"--feature-labels=node", "--not-confidential"}},
      {"--set-cc-mode", {"--set-cc-mode"}},
      {"--pull-secrets", {"--kata-classes=-of a test", "--pull-secrets=-of a test"}},
      {"--without-operator", {"--without-operator"}}};
  const auto special = kSpecial.find(name);
  return special == kSpecial.end() ? std::vector<std::string>{name + "=-of a test"} : special->second;
}

TEST(AgentOptions, EachIsHandedOn) {
  EXPECT_GE(names().size(), 16U);
  for (const std::string& name : names()) {
    SCOPED_TRACE(name);
    const Parsed first = parse(given(name));
    EXPECT_FALSE(first.options == agent::AgentProgramOptions()) << "the test gives what holds anyway";
    EXPECT_TRUE(parse(first.words).options == first.options);
  }
}

TEST(AgentOptions, WhatIsNotGivenIsNotHandedOn) {
  EXPECT_THAT(parse({}).words, IsEmpty());
  EXPECT_THAT(parse({"--release", "a", "--release", "b"}).words, ElementsAre("--release=a", "--release=b"));
  EXPECT_THAT(parse({"--context", ""}).words, ElementsAre("--context", ""));
  EXPECT_TRUE(parse({"--config-map=a", "--config-map=b"}).options.has_config_map);
}

TEST(AgentOptions, SomeCountForOneReconcileToo) {
  std::vector<std::string> of_any_mode;
  for (const std::string& name : names())
    if (parse(given(name)).for_the_server.empty()) of_any_mode.push_back(name);
  EXPECT_THAT(of_any_mode,
              ElementsAre("--default-workload", "--default-policy", "--default-vgpu-config", "--release",
                          "--feature-labels", "--not-confidential", "--set-cc-mode"));
  EXPECT_EQ(parse({"--release=a", "--kubeconfig=b"}).for_the_server, "--kubeconfig");
}

}  // namespace
}  // namespace ferry::cli
