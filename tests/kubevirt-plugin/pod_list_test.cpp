// SPDX-License-Identifier: Apache-2.0
// The bytes that kubelets send, against our description of them and what is read from them.
#include "kubevirt-plugin/allocation/pod_list.h"

#include <ostream>

#include <gmock/gmock.h>

#include "podresources.pb.h"
#include "tests/kubevirt-plugin/hex.h"
#include "tests/support/must.h"

namespace ferry::plugin {
namespace {

using test::bytes;
using test::must;
using testing::ElementsAre;
using testing::IsEmpty;

// Pod ns/vm, container c: nvidia.com/X, 0000:17:00.0 on NUMA node 1.
constexpr const char* kOneDevice =
    "0a31 0a02 766d 1202 6e73 1a27 0a01 63 1222 0a0c 6e76696469612e636f6d2f58 120c 303030303a31373a30302e30 "
    "1a04 0a02 0801";

// The same pod: claim ns/claim, of driver gpu.nvidia.com, pool node, device gpu-0, CDI name
// nvidia.com/pgpu=8, and a share_id.
constexpr const char* kOneClaim =
    "0a4e 0a02 766d 1202 6e73 1a44 0a01 63 2a3f 1205 636c61696d 1a02 6e73 2232 0a13 0a11 "
    "6e76696469612e636f6d2f706770753d38 120e 6770752e6e76696469612e636f6d 1a04 6e6f6465 2205 6770752d30";

vfio::PodDevice device(const std::string& resource, const std::vector<std::string>& ids,
                       const std::vector<std::int64_t>& nodes = {}) {
  return {.name_space = "ns",
          .pod = "vm",
          .container = "c",
          .resource = resource,
          .ids = ids,
          .numa_nodes = nodes};
}

v1::ContainerResources& add_container(v1::ListPodResourcesResponse& list) {
  auto& pod = *list.add_pod_resources();
  pod.set_name("vm");
  pod.set_namespace_("ns");
  auto& container = *pod.add_containers();
  container.set_name("c");
  return container;
}

TEST(PodList, BytesOfADevice) {
  v1::ListPodResourcesResponse list;
  auto& devices = *add_container(list).add_devices();
  devices.set_resource_name("nvidia.com/X");
  devices.add_device_ids("0000:17:00.0");
  devices.mutable_topology()->add_nodes()->set_id(1);
  EXPECT_EQ(list.SerializeAsString(), bytes(kOneDevice));
  EXPECT_THAT(must(read_pod_list(bytes(kOneDevice))).devices,
              ElementsAre(device("nvidia.com/X", {"0000:17:00.0"}, {1})));
}

TEST(PodList, BytesOfAClaim) {
  v1::ListPodResourcesResponse list;
  auto& claim = *add_container(list).add_dynamic_resources();
  claim.set_claim_name("claim");
  claim.set_claim_namespace("ns");
  auto& claimed = *claim.add_claim_resources();
  claimed.add_cdi_devices()->set_name("nvidia.com/pgpu=8");
  claimed.set_driver_name("gpu.nvidia.com");
  claimed.set_pool_name("node");
  claimed.set_device_name("gpu-0");
  EXPECT_EQ(list.SerializeAsString(), bytes(kOneClaim));
  EXPECT_THAT(must(read_pod_list(bytes(kOneClaim))).devices,
              ElementsAre(device("nvidia.com/pgpu", {"8"}), device("gpu.nvidia.com", {"gpu-0"})));
}

TEST(PodList, RequestIsEmpty) {
  EXPECT_EQ(v1::ListPodResourcesRequest().SerializeAsString(), "");
}

TEST(PodList, NobodyHasAnything) {
  EXPECT_THAT(must(read_pod_list("")).devices, IsEmpty());
  // A pod without devices, and a resource without one.
  EXPECT_THAT(must(read_pod_list(bytes("0a11 0a02 766d 1202 6e73 1a00 1a05 1203 0a01 72"))).devices,
              IsEmpty());
}

TEST(PodList, NamesThePodsWithoutDevicesToo) {
  v1::ListPodResourcesResponse list = v1::ListPodResourcesResponse();
  list.ParseFromString(bytes(kOneDevice));
  auto& other = *list.add_pod_resources();
  other.set_name("ferry-x7k");
  other.set_namespace_("ferry");
  EXPECT_THAT(must(read_pod_list(list.SerializeAsString())).pods, ElementsAre("ns/vm", "ferry/ferry-x7k"));
}

TEST(PodList, GathersAResourceThatComesInParts) {
  v1::ListPodResourcesResponse list;
  auto& container = add_container(list);
  const auto add = [&](const std::string& resource, const std::string& id, std::int64_t node) {
    auto& devices = *container.add_devices();
    devices.set_resource_name(resource);
    devices.add_device_ids(id);
    devices.mutable_topology()->add_nodes()->set_id(node);
  };
  add("nvidia.com/X", "b", 1);
  add("nvidia.com/Y", "c", 1);
  add("nvidia.com/X", "a", 0);
  add("nvidia.com/X", "a", 0);
  EXPECT_THAT(must(read_pod_list(list.SerializeAsString())).devices,
              ElementsAre(device("nvidia.com/X", {"b", "a"}, {0, 1}), device("nvidia.com/Y", {"c"}, {1})));
}

TEST(PodList, KeepsContainersAndPodsApart) {
  v1::ListPodResourcesResponse list;
  for (const char* name : {"one", "two"}) {
    auto& container = add_container(list);
    container.set_name(name);
    auto& devices = *container.add_devices();
    devices.set_resource_name("r");
    devices.add_device_ids("i");
  }
  const auto read = must(read_pod_list(list.SerializeAsString())).devices;
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].container, "one");
  EXPECT_EQ(read[1].container, "two");
}

TEST(PodList, PassesOverProcessorsMemoryAndWhatIsYetToCome) {
  // Of the container: cpu_ids 0 and 1, a ContainerMemory; of the pod: cpu_ids, field 100; of the answer:
  // field 9.
  EXPECT_THAT(must(read_pod_list(bytes("0a1e 0a02 766d 1202 6e73 2201 00 a206 01 00 1a0d 0a01 63 1a02 0001 "
                                       "2204 0a02 6d31 4a01 00")))
                  .devices,
              IsEmpty());
  // Of the claimed device: share_id.
  EXPECT_THAT(must(read_pod_list(bytes("0a14 0a02 766d 1202 6e73 1a0a 0a01 63 2a05 2203 2a01 73"))).devices,
              IsEmpty());
  EXPECT_THAT(must(read_pod_list(bytes("0801"))).devices, IsEmpty()) << "a known number of another type";
}

TEST(PodList, SaysWhenAnAnswerIsCutOff) {
  for (const char* whole : {kOneDevice, kOneClaim}) {
    const std::string answer = bytes(whole);
    for (std::size_t length = 1; length < answer.size(); ++length) {
      const auto read = read_pod_list(answer.substr(0, length));
      ASSERT_FALSE(read) << length;
      EXPECT_EQ(read.error().code, Errc::malformed_host);
    }
  }
}

struct Malformed {
  std::string name;
  std::string answer;
};
void PrintTo(const Malformed& row, std::ostream* out) {
  *out << row.name;
}

class MalformedPodList : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedPodList, IsAnError) {
  const auto read = read_pod_list(GetParam().answer);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::malformed_host);
  EXPECT_EQ(read.error().message, "the kubelet's list of pods cannot be read");
}

INSTANTIATE_TEST_SUITE_P(
    Table, MalformedPodList,
    testing::Values(Malformed{"FieldZero", bytes("0000")}, Malformed{"EndOfNoGroup", bytes("0c")},
                    Malformed{"WireTypeSeven", bytes("0f")}, Malformed{"LengthPastTheEnd", bytes("0a7f 00")},
                    Malformed{"LengthOfTwoGiga", bytes("0a ffffffff07")},
                    Malformed{"LengthBelowZero", bytes("0a ffffffffffffffffff01")},
                    Malformed{"TagWithoutEnd", bytes("ffffffffffffffffffffff")},
                    Malformed{"InnerLengthPastTheOuter", bytes("0a04 0a7f 766d")},
                    Malformed{"NameThatIsNoUtf8", bytes("0a04 0a02 c328")},
                    Malformed{"Text", "HTTP/1.1 400 Bad Request"},
                    Malformed{"OneByteOfTooMuch", bytes(std::string(kOneDevice) + "0a")},
                    Malformed{"SixteenMegabytesOfNothing", std::string(std::size_t{16} << 20U, '\0')}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::plugin
