// SPDX-License-Identifier: Apache-2.0
// What `kubectl ferry` asks of an API server, and what it makes of what it is not shown.
#include "kubectl/cluster_reader.h"

#include <gmock/gmock.h>

#include "tests/cli/composed_clusters.h"
#include "tests/kube/kube_fixture.h"
#include "tests/support/must.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class ClusterReader : public testing::Test, public KubeFixture {
 protected:
  kube::AskForPart asks() {
    return [this](const kube::Selection& selection, const kube::ListRange& range) {
      return outcome<json>([&](auto done) { client.list(selection, range, std::move(done)); });
    };
  }
  void put(const kubectl::ClusterObjects& objects) {
    for (const auto* list : {&objects.nodes, &objects.pods, &objects.vmis})
      for (const json& object : *list) server.put(object);
  }
  Result<kubectl::ClusterObjects> read_with_vmis() {
    auto objects = kubectl::read_cluster(asks());
    if (!objects) return objects;
    if (auto read = kubectl::read_vmis(asks(), *objects); !read) return fail(std::move(read).error());
    return objects;
  }
  /// Each list of this kind is answered so.
  void answer_lists_of(const std::string& plural, const ApiFault& fault) {
    server.script = [=](const kube::ApiRequest& request) -> std::optional<ApiFault> {
      if (request.path.find("/" + plural + "?") == std::string::npos) return std::nullopt;
      return fault;
    };
  }
};

TEST_F(ClusterReader, HasWhatTheServerHas) {
  put(composed_cluster("passthrough").objects);
  auto ended = gpu_pod("ml", "ended", "gpu-1", {{kWholeL40s, 1}});
  ended["status"]["phase"] = "Succeeded";
  server.put(ended);
  const auto objects = read_with_vmis();
  ASSERT_TRUE(objects) << message_of(objects);
  EXPECT_THAT(objects->nodes, SizeIs(2));
  EXPECT_THAT(objects->pods, SizeIs(2)) << "without the one that has ended, and the one without a GPU";
  EXPECT_THAT(objects->vmis, SizeIs(3)) << "without the one that has no GPU";
  EXPECT_THAT(objects->notes, IsEmpty());
  const auto of_list = kubectl::read_cluster(asks());
  ASSERT_TRUE(of_list);
  EXPECT_THAT(of_list->vmis, IsEmpty());
  EXPECT_EQ(server.count("GET", "virtualmachineinstances"), 1U) << "`list` needs no right to see VMs";
  EXPECT_EQ(server.count("GET"), server.seen().size()) << "nothing is written";
}

TEST_F(ClusterReader, NeedsNoKubevirt) {
  put(composed_cluster("mixed").objects);
  answer_lists_of("virtualmachineinstances", {.status = 404, .body = "404 page not found\n"});
  const auto objects = read_with_vmis();
  ASSERT_TRUE(objects) << message_of(objects);
  EXPECT_THAT(objects->notes, IsEmpty());
}

TEST_F(ClusterReader, SaysWhatTheRoleDoesNotShow) {
  put(composed_cluster("mixed").objects);
  answer_lists_of("virtualmachineinstances", ApiFault::status_of(403, "Forbidden"));
  const auto objects = read_with_vmis();
  ASSERT_TRUE(objects) << message_of(objects);
  EXPECT_THAT(objects->notes, ElementsAre(HasSubstr("VMs that have no pod yet are not shown: ")));
  EXPECT_THAT(kubectl::cluster_gpus(*objects).users, SizeIs(3)) << "pods show the others";
  answer_lists_of("pods", ApiFault::status_of(403, "Forbidden"));
  const auto without_pods = kubectl::read_cluster(asks());
  EXPECT_EQ(code_of(without_pods), kube::ApiErrc::forbidden);
  EXPECT_THAT(without_pods.error().hint, HasSubstr("list on pods"));
}

TEST_F(ClusterReader, NeedsNoClaims) {
  kubectl::ClusterObjects objects;
  answer_lists_of("resourceclaims", {.status = 404, .body = "404 page not found\n"});
  EXPECT_TRUE(kubectl::read_claims(asks(), objects));
  EXPECT_THAT(objects.notes, IsEmpty()) << "before Kubernetes 1.34";
  answer_lists_of("resourceclaims", ApiFault::status_of(403, "Forbidden"));
  EXPECT_TRUE(kubectl::read_claims(asks(), objects));
  EXPECT_THAT(objects.notes, ElementsAre(HasSubstr("ResourceClaims are not shown: ")));
  answer_lists_of("resourceclaims", ApiFault::status_of(500, "InternalError"));
  EXPECT_FALSE(kubectl::read_claims(asks(), objects));
}

TEST_F(ClusterReader, AsksForOneNodeAlone) {
  put(composed_cluster("troubled").objects);
  server.put(gpu_pod("ml", "elsewhere", "gpu-1", {{kWholeL40s, 1}}));
  const auto objects = kubectl::read_cluster_node(asks(), "gpu-6");
  ASSERT_TRUE(objects) << message_of(objects);
  EXPECT_THAT(objects->nodes, SizeIs(1));
  EXPECT_THAT(objects->pods, SizeIs(1));
}

TEST_F(ClusterReader, SaysWhichNodeWasMeant) {
  put(composed_cluster("troubled").objects);
  const auto objects = kubectl::read_cluster_node(asks(), "gpu-66");
  EXPECT_EQ(code_of(objects), Errc::not_found);
  EXPECT_THAT(message_of(objects), HasSubstr("there is no node 'gpu-66'; did you mean 'gpu-6'?"));
  const auto none = kubectl::read_cluster_node(asks(), "a/b");
  EXPECT_EQ(code_of(none), Errc::usage);
}

TEST_F(ClusterReader, KnowsNoKubevirtFromOneThatItIsNotShown) {
  const auto kubevirts = [&] { return must(kubectl::read_kubevirts(asks())); };
  ASSERT_TRUE(kubevirts());
  EXPECT_THAT(*kubevirts(), IsEmpty());
  answer_lists_of("kubevirts", ApiFault::status_of(404, "NotFound"));
  ASSERT_TRUE(kubevirts());
  EXPECT_THAT(*kubevirts(), IsEmpty());
  answer_lists_of("kubevirts", ApiFault::status_of(403, "Forbidden"));
  EXPECT_FALSE(kubevirts());
}

}  // namespace
