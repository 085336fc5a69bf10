// SPDX-License-Identifier: Apache-2.0
#include "kube/api_path.h"

#include <string>

#include <gmock/gmock.h>

#include "tests/kube/kube_fixture.h"
#include "tests/support/must.h"

namespace {

using namespace ferry;
using test::code_of;
using test::must;

TEST(ApiPath, IsWhereTheServerKeepsIt) {
  EXPECT_EQ(kube::path_of(kube::node_ref("n1")).value_or(""), "/api/v1/nodes/n1");
  EXPECT_EQ(kube::path_of(kube::config_map_ref("gpu-operator", "profiles")).value_or(""),
            "/api/v1/namespaces/gpu-operator/configmaps/profiles");
  EXPECT_EQ(kube::path_of(kube::pod_ref("a", "b"), "eviction").value_or(""),
            "/api/v1/namespaces/a/pods/b/eviction");
  EXPECT_EQ(kube::path_of(kube::ObjectRef{.kind = kube::kLeases, .space = "kube-system", .name = "ferry"})
                .value_or(""),
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ferry");
  EXPECT_EQ(kube::collection_of(kube::kEvents, "default").value_or(""), "/api/v1/namespaces/default/events");
}

TEST(ApiPath, SelectsByWhatARoleThatNamesTheObjectPermits) {
  EXPECT_EQ(kube::path_of(kube::only(kube::node_ref("n1"))).value_or(""),
            "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&labelSelector=");
  EXPECT_EQ(kube::path_of(kube::only(kube::config_map_ref("a", "b"))).value_or(""),
            "/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Db&labelSelector=");
  EXPECT_EQ(kube::path_of(kube::pods_of_node("n1")).value_or(""),
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3D"
            "Failed&labelSelector=");
  const kube::Selection operands{.kind = kube::kPods, .space = "a", .fields = {}, .labels = "app=x"};
  EXPECT_EQ(kube::path_of(operands).value_or(""),
            "/api/v1/namespaces/a/pods?fieldSelector=&labelSelector=app%3Dx");
}

TEST(ApiPath, IsOfAPartOfAList) {
  EXPECT_EQ(kube::path_of(kube::Selection{.kind = kube::kVmis}, {.most = 200}).value_or(""),
            "/apis/kubevirt.io/v1/virtualmachineinstances?fieldSelector=&labelSelector=&limit=200");
  EXPECT_EQ(kube::path_of(kube::Selection{.kind = kube::kNodes}, {.most = 1, .after = "a b&c"}).value_or(""),
            "/api/v1/nodes?fieldSelector=&labelSelector=&limit=1&continue=a%20b%26c");
}

TEST(ApiPath, KeepsASelectorsValueOneValue) {
  EXPECT_EQ(kube::pods_of_node("n1,metadata.namespace=x\\").fields,
            R"(spec.nodeName=n1\,metadata.namespace\=x\\,)" + std::string(kube::kNotEndedPods));
}

TEST(ApiPath, EscapesWhatANameMayHave) {
  EXPECT_EQ(kube::path_of(kube::node_ref("a b?c#d&e")).value_or(""), "/api/v1/nodes/a%20b%3Fc%23d%26e");
}

struct BadName {
  const char* what;
  std::string name;
};

class NameOfNoObject : public testing::TestWithParam<BadName> {};

// An empty one would be the collection, and "delete it" would be "delete all of them".
TEST_P(NameOfNoObject, IsRefused) {
  EXPECT_EQ(code_of(kube::path_of(kube::node_ref(GetParam().name))), Errc::usage);
  EXPECT_EQ(code_of(kube::path_of(kube::config_map_ref("a", GetParam().name))), Errc::usage);
}

TEST_P(NameOfNoObject, IsNoNamespaceEither) {
  if (GetParam().name.empty()) GTEST_SKIP() << "that is none, which some kinds have";
  EXPECT_EQ(code_of(kube::path_of(kube::config_map_ref(GetParam().name, "x"))), Errc::usage);
  EXPECT_EQ(code_of(kube::collection_of(kube::kEvents, GetParam().name)), Errc::usage);
}

INSTANTIATE_TEST_SUITE_P(Table, NameOfNoObject,
                         testing::Values(BadName{"Empty", ""}, BadName{"Here", "."}, BadName{"Above", ".."},
                                         BadName{"TwoParts", "a/b"}, BadName{"Escaped", "%2e%2e"},
                                         BadName{"Nul", std::string("a\0b", 3)},
                                         BadName{"TooLong", std::string(254, 'a')}),
                         [](const auto& row) { return row.param.what; });

TEST(ApiPath, IsThatOfTheEndOfALog) {
  EXPECT_EQ(must(kube::log_path(kube::pod_ref("a", "p"), {.container = "main", .lines = 3})),
            "/api/v1/namespaces/a/pods/p/log?container=main&tailLines=3&limitBytes=4194304&timestamps=true");
  EXPECT_THAT(must(kube::log_path(kube::pod_ref("a", "p"), {.container = "main", .previous = true})),
              testing::EndsWith("&previous=true"));
}

TEST(ApiPath, SaysWhatItIsToPeople) {
  EXPECT_EQ(kube::node_ref("n1").text(), "Node n1");
  EXPECT_EQ(kube::config_map_ref("a", "b").text(), "ConfigMap a/b");
  EXPECT_EQ(kube::only(kube::config_map_ref("a", "b")).text(), "ConfigMap in a metadata.name=b");
}

}  // namespace
