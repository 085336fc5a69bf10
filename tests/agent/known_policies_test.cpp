// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "agent/desired_state/written_policy.h"

namespace ferry::agent {
namespace {

ConfigText text_with(const std::string& name, const std::string& file = "configmap gpus/ferry") {
  return {.file = file,
          .text = fmt::format("version: v2\npolicies:\n  {}: [{{devices: all, mode: host}}]\n", name)};
}

TEST(KnownPolicies, AreReadOnce) {
  const auto first = known_policies(text_with("a"));
  ASSERT_TRUE(*first);
  EXPECT_EQ(known_policies(text_with("a")), first);
}

TEST(KnownPolicies, AreThoseOfTheTextAndItsPlace) {
  for (const char* const name : {"a", "b"}) {
    for (const char* const file : {"here", "there"}) {
      const auto known = known_policies(text_with(name, file));
      ASSERT_TRUE(*known);
      EXPECT_EQ((*known)->policies.at(0).name, name);
      EXPECT_EQ((*known)->policies.at(0).place, std::string(file) + ":3");
    }
  }
}

TEST(KnownPolicies, OfManyEachIsReadOnce) {
  constexpr std::size_t kMany = 40;
  const auto each = [] {
    drop_unused_policies();
    std::vector<std::shared_ptr<const Result<policy::PolicyFile>>> out;
    out.reserve(kMany);
    for (std::size_t i = 0; i < kMany; ++i) out.push_back(known_policies(text_with(fmt::format("one{}", i))));
    return out;
  };
  const auto first = each();
  for (int look = 0; look < 100; ++look) EXPECT_EQ(each(), first);
}

TEST(KnownPolicies, WhatAReconcileHasNotAskedForIsForgotten) {
  const std::weak_ptr<const Result<policy::PolicyFile>> first = known_policies(text_with("a"));
  drop_unused_policies();
  EXPECT_FALSE(first.expired());
  drop_unused_policies();
  EXPECT_TRUE(first.expired());
  EXPECT_EQ((*known_policies(text_with("a")))->policies.at(0).name, "a");
}

TEST(KnownPolicies, AFaultIsRemembered) {
  const ConfigText broken{.file = "f", .text = "version: v2\npolicies: [typo]\n"};
  const auto first = known_policies(broken);
  ASSERT_FALSE(*first);
  EXPECT_EQ(known_policies(broken), first);
}

}  // namespace
}  // namespace ferry::agent
