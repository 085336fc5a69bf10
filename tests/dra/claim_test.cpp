// SPDX-License-Identifier: Apache-2.0
#include "dra/claim.h"

#include <string>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/must.h"

namespace ferry::dra {
namespace {

using nlohmann::json;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kPool = "node7/gpu-ferry";

ClaimKey key() {
  return {.uid = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711", .space = "studio", .name = "render-a"};
}

/// As the API server shows a claim with a GPU and a device of another driver.
json claim() {
  return json::parse(R"({
    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
    "metadata": {"name": "render-a", "namespace": "studio", "uid": "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711"},
    "spec": {"devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": "vgpu.gpu-ferry.io"}}]}},
    "status": {
      "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
      "allocation": {
        "nodeSelector": {},
        "devices": {
          "config": [{"source": "FromClass", "opaque": {"driver": "nic.example.com", "parameters": {}}}],
          "results": [
            {"request": "nic", "driver": "nic.example.com", "pool": "node7", "device": "vf-0", "shareID": "s"},
            {"request": "card", "driver": "gpu-ferry.io", "pool": "node7/gpu-ferry",
             "device": "vgpu-0000-3b-00-0-1150-0", "compatibilityGroups": {"group-42": ["size-6144"]}}]}}}})");
}

json& results(json& object) {
  return object["status"]["allocation"]["devices"]["results"];
}

TEST(AllocatedClaim, HasTheDevicesOfThisDriver) {
  const AllocatedClaim read = must(read_allocated_claim(claim(), key(), kPool));
  const CheckpointClaim expected{
      .uid = key().uid,
      .space = key().space,
      .name = key().name,
      .devices = {{.request = "card", .pool = kPool, .device = {.name = "vgpu-0000-3b-00-0-1150-0"}}}};
  EXPECT_EQ(read.record, expected);
  EXPECT_THAT(read.classes, ElementsAre(""));
  EXPECT_THAT(read.warnings, IsEmpty());
}

TEST(AllocatedClaim, KnowsItsNameInThePod) {
  json object = claim();
  object["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] = "gpu";
  EXPECT_EQ(must(read_allocated_claim(object, key(), kPool)).record.pod_claim, "gpu");
}

TEST(AllocatedClaim, WarnsOfFormsThatKubevirtCannotRead) {
  json object = claim();
  json& list = results(object);
  list[1]["request"] = "card/small";
  EXPECT_THAT(
      must(read_allocated_claim(object, key(), kPool)).warnings,
      ElementsAre("claim studio/render-a: KubeVirt finds no request card, since its name in the pod's "
                  "files is card/small: do without firstAvailable"));
  list[1]["request"] = "card";
  for (int i = 1; i < 3; ++i) {
    json another = list[1];
    another["device"] = "vgpu-0000-3b-00-0-1150-" + std::to_string(i);
    list.push_back(another);
  }
  const AllocatedClaim read = must(read_allocated_claim(object, key(), kPool));
  EXPECT_EQ(read.record.devices.size(), 3U);
  EXPECT_THAT(read.warnings, ElementsAre(HasSubstr("make a request for each GPU")));
}

constexpr const char* kForResources = "resource.kubernetes.io/extended-resource-claim";

/// The claim that the scheduler of Kubernetes 1.36 makes for a pod with two GPUs by an extended resource.
json claim_for_resources() {
  json object = claim();
  object["metadata"]["annotations"][kForResources] = "true";
  object["spec"]["devices"]["requests"] = json::parse(R"([
    {"name": "container-1-request-0", "exactly": {"deviceClassName": "other.example.com", "count": 1}},
    {"name": "container-0-request-0", "exactly": {"deviceClassName": "l40s.example.com", "count": 2}}])");
  json& list = results(object);
  list.erase(0);
  list[0]["request"] = "container-0-request-0";
  list.push_back(list[0]);
  list[1]["device"] = "vgpu-0000-3b-00-0-1150-1";
  return object;
}

TEST(AllocatedClaim, ForExtendedResourcesHasTheClassOfEachRequest) {
  json object = claim_for_resources();
  const AllocatedClaim read = must(read_allocated_claim(object, key(), kPool));
  EXPECT_THAT(read.record.devices, SizeIs(2));
  EXPECT_THAT(read.classes, ElementsAre("l40s.example.com", "l40s.example.com"));
  EXPECT_THAT(read.warnings, IsEmpty()) << "KubeVirt takes all devices of such a request";

  object["metadata"]["annotations"][kForResources] = "false";
  EXPECT_EQ(must(read_allocated_claim(object, key(), kPool)).classes.at(0), "");

  for (const auto& [at, value] : {std::pair{"/spec/devices/requests/1/exactly", "{}"},
                                  {"/spec/devices/requests/1/exactly/deviceClassName", "\"../x\""},
                                  {"/spec/devices/requests/1/name", "\"other\""},
                                  {"/spec", "null"}}) {
    json bad = claim_for_resources();
    bad[json::json_pointer(at)] = json::parse(value);
    const auto refused = read_allocated_claim(bad, key(), kPool);
    ASSERT_FALSE(refused) << at;
    EXPECT_EQ(refused.error().message,
              "claim studio/render-a: its request container-0-request-0 has no DeviceClass");
  }
}

TEST(AllocatedClaim, HasTheNamesByWhichAPodCanAskForAClass) {
  const auto with_name = [](const std::string& name) {
    return json{{"spec", {{"extendedResourceName", name}}}};
  };
  EXPECT_THAT(must(resources_of(with_name("nvidia.com/AD102GL_L40S"), "l40s")),
              ElementsAre("nvidia.com/AD102GL_L40S", "deviceclass.resource.kubernetes.io/l40s"));
  EXPECT_THAT(must(resources_of(json::object(), "l40s")),
              ElementsAre("deviceclass.resource.kubernetes.io/l40s"));
  EXPECT_THAT(must(resources_of(with_name("a.example/b"), std::string(64, 'l'))), ElementsAre("a.example/b"))
      << "no pod can ask by a longer name";
  for (const std::string& bad : {std::string("a b"), std::string("a=b"), std::string(254, 'a')}) {
    const auto refused = resources_of(with_name(bad), "l40s");
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().code, Errc::unsupported);
    EXPECT_THAT(refused.error().message, HasSubstr("DeviceClass l40s"));
  }
}

TEST(AllocatedClaim, ThatCannotBePreparedSaysWhatToDo) {
  for (const auto& [at, value, code, message] :
       {std::tuple{"/metadata/uid", "\"other\"", Errc::not_found,
                   "its UID is other, and the kubelet asks for 5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711"},
        {"/metadata", "{}", Errc::malformed_host, "it has no UID"},
        {"/metadata/annotations", R"({"resource.kubernetes.io/pod-claim-name": "../x"})",
         Errc::malformed_host, "the pod cannot call it '../x'"},
        {"/status", "null", Errc::refused, "it is not allocated"},
        {"/status/allocation", "null", Errc::refused, "it is not allocated"},
        {"/status/allocation/devices", "{}", Errc::malformed_host, "its allocation has no results"},
        {"/status/allocation/devices/results", "[]", Errc::refused, "it has no device of gpu-ferry.io"},
        {"/status/allocation/devices/results/1/pool", "\"node8/gpu-ferry\"", Errc::refused,
         "it has a device of the pool node8/gpu-ferry, and this node's is node7/gpu-ferry"},
        {"/status/allocation/devices/results/1/adminAccess", "true", Errc::unsupported,
         "the request card asks for admin access"},
        {"/status/allocation/devices/results/1/shareID", "\"s\"", Errc::unsupported,
         "the request card asks for a share of a device"},
        {"/status/allocation/devices/results/1/device", "\"../../x\"", Errc::malformed_host,
         "it has the device '../../x' for the request 'card'"},
        {"/status/allocation/devices/results/1/request", "\"a/b/c\"", Errc::malformed_host,
         "it has the device 'vgpu-0000-3b-00-0-1150-0' for the request 'a/b/c'"},
        {"/status/allocation/devices/results/1/request", "7", Errc::malformed_host,
         "it has the device 'vgpu-0000-3b-00-0-1150-0' for the request ''"},
        {"/status/allocation/devices/config/0/opaque/driver", "\"gpu-ferry.io\"", Errc::unsupported,
         "it passes parameters to gpu-ferry.io"}}) {
    json object = claim();
    object[json::json_pointer(at)] = json::parse(value);
    const auto read = read_allocated_claim(object, key(), kPool);
    ASSERT_FALSE(read) << at;
    EXPECT_EQ(read.error().code, code) << at;
    EXPECT_EQ(read.error().message, std::string("claim studio/render-a: ") + message);
    EXPECT_FALSE(read.error().hint.empty()) << at;
  }
}

TEST(AllocatedClaim, HasEachDeviceOnce) {
  json object = claim();
  json again = results(object)[1];
  again["request"] = "second";
  results(object).push_back(again);
  const auto read = read_allocated_claim(object, key(), kPool);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::malformed_host);
  EXPECT_EQ(read.error().message,
            "claim studio/render-a: it has the device 'vgpu-0000-3b-00-0-1150-0' twice");
}

TEST(AllocatedClaim, IsNeverReadFromSomethingElse) {
  for (const char* const other : {"null", "7", "[]", "{}", "\"\"", R"({"metadata": []})"})
    EXPECT_EQ(read_allocated_claim(json::parse(other), key(), kPool).error().code, Errc::malformed_host)
        << other;
  for (const ClaimKey& bad :
       {ClaimKey{.uid = "../x", .space = "a", .name = "b"}, ClaimKey{.uid = "u", .space = "a/b", .name = "b"},
        ClaimKey{.uid = "u", .space = "a", .name = ".."}, ClaimKey{.uid = "", .space = "a", .name = "b"}})
    EXPECT_EQ(read_allocated_claim(claim(), bad, kPool).error().code, Errc::malformed_host) << bad.uid;
}

}  // namespace
}  // namespace ferry::dra
