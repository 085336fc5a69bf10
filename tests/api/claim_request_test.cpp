// SPDX-License-Identifier: Apache-2.0
#include "api/claim_request.h"

#include <cerrno>
#include <ios>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/must.h"

namespace ferry::api {
namespace {

using test::must;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kUid = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711";

vfio::PciAddress at(const char* address) {
  return must(vfio::PciAddress::parse(address));
}

ClaimRequest some_request() {
  return {.action = ClaimAction::prepare,
          .claim = kUid,
          .space = "studio",
          .name = "render-a",
          .devices = {{.device = {.gpu = at("0000:3b:00.0")},
                       .request = "card",
                       .pool = "node7/gpu-ferry",
                       .name = "whole-a",
                       .attributes = {{"numaNode", 1}, {"type", "whole"}}},
                      {.device = {.gpu = at("10000:af:00.0"), .type = "nvidia-1150", .placement = 4U},
                       .request = "small/first",
                       .pool = "node7/gpu-ferry",
                       .name = "vgpu-b",
                       .resources = {"nvidia.com/NVIDIA_L40S-6Q"}}}};
}

std::vector<PreparedDevice> some_devices() {
  return {{.function = at("0000:3b:00.0"),
           .nodes = {{.path = "/dev/vfio/vfio", .mode = 0666U}, {.path = "/dev/vfio/57"}}},
          {.mdev_uuid = "b7064fe1-6802-5216-8eb4-f5580c656c4f", .nodes = {{.path = "/dev/vfio/60"}}}};
}

/// The text with its first `from` replaced; the text must have it.
std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return place == std::string::npos ? text : text.replace(place, from.size(), to);
}

TEST(ClaimRequestText, HasTheFormOfItsHeader) {
  EXPECT_EQ(
      claim_request_text(some_request()),
      R"({"version":2,"action":"prepare","claim":"5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711",)"
      R"("namespace":"studio","name":"render-a","pod_claim":null,"devices":[)"
      R"({"gpu":"0000:3b:00.0","type":null,"placement":null,"request":"card","pool":"node7/gpu-ferry",)"
      R"("name":"whole-a","attributes":[{"name":"numaNode","int":1},{"name":"type","string":"whole"}],)"
      R"("resources":null},)"
      R"({"gpu":"10000:af:00.0","type":"nvidia-1150","placement":4,"request":"small/first",)"
      R"("pool":"node7/gpu-ferry","name":"vgpu-b","attributes":[],"resources":["nvidia.com/NVIDIA_L40S-6Q"]}]})");
  EXPECT_EQ(claim_answer_text(some_devices()),
            R"({"version":2,"devices":[{"mdev_uuid":null,"function":"0000:3b:00.0","nodes":[)"
            R"({"path":"/dev/vfio/vfio","mode":438},{"path":"/dev/vfio/57","mode":null}]},)"
            R"({"mdev_uuid":"b7064fe1-6802-5216-8eb4-f5580c656c4f","function":null,"nodes":[)"
            R"({"path":"/dev/vfio/60","mode":null}]}]})");
}

TEST(ClaimRequestText, ReadsBackAsItself) {
  EXPECT_EQ(must(read_claim_request(claim_request_text(some_request()))), some_request());
  ClaimRequest of_template = some_request();
  of_template.pod_claim = "gpu";
  EXPECT_EQ(must(read_claim_request(claim_request_text(of_template))), of_template);
  const ClaimRequest undo{
      .action = ClaimAction::unprepare, .claim = kUid, .space = "studio", .name = "render.a"};
  EXPECT_EQ(must(read_claim_request(claim_request_text(undo))), undo);
  EXPECT_EQ(must(read_claim_answer(claim_answer_text(some_devices()))), some_devices());
  EXPECT_THAT(must(read_claim_answer(claim_answer_text(std::vector<PreparedDevice>()))), IsEmpty());
}

TEST(ClaimRequestText, OfAnotherFormIsRefusedWithTheKey) {
  const std::string text = claim_request_text(some_request());
  const std::string uid = kUid;
  std::string many = R"("devices":[)";
  for (int i = 0; i < 31; ++i)
    many += R"({"gpu":"0000:01:00.0","request":"r","pool":"p","name":"n)" + std::to_string(i) +
            R"(","attributes":[]},)";
  std::string many_attributes = R"("attributes":[)";
  for (int i = 0; i < 32; ++i) many_attributes += R"({"name":"a)" + std::to_string(i) + R"(","int":1},)";
  for (const auto& [from, to, message] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {R"({"version")", R"([{"version")", "not JSON"},
           {R"("version":2)", R"("version":1)", "version: expected 2, found 1"},
           {R"("prepare")", R"("destroy")", "action: 'destroy' is none of its words"},
           {R"("action":"prepare")", R"("action":"unprepare")", "devices: expected none"},
           {R"("action":)", R"("act":)", "action: the key is missing"},
           {R"("claim":)", R"("uid":)", "claim: the key is missing"},
           {uid, "", "claim: it cannot be a UID of Kubernetes"},
           {uid, "../" + uid, "claim: it cannot be a UID of Kubernetes"},
           {uid, "A" + uid, "claim: it cannot be a UID of Kubernetes"},
           {uid, std::string(64, 'a'), "claim: it cannot be a UID of Kubernetes"},
           {uid, R"(a\u0000)", "claim: it cannot be a UID of Kubernetes"},
           {R"("studio")", R"("st/udio")", "namespace: it cannot be a namespace"},
           {R"("studio")", "7", "namespace: expected a text"},
           {R"("render-a")", R"("render..a")", "name: it cannot be the name of a ResourceClaim"},
           {R"("render-a")", R"("")", "name: it cannot be the name of a ResourceClaim"},
           {R"("render-a")", R"("render-a.")", "name: it cannot be the name of a ResourceClaim"},
           {R"("render-a")", R"("-")", "name: it cannot be the name of a ResourceClaim"},
           {R"("render-a")", '"' + std::string(254, 'a') + '"',
            "name: it cannot be the name of a ResourceClaim"},
           {R"("devices":[)", R"("devices":[5,)", "devices[0]: expected an object"},
           {R"("devices":[)", R"("devices":7,"more":[)", "devices: expected a list"},
           {R"("devices":[)", R"("devices":[],"more":[)", "devices: expected a device"},
           {R"("devices":[)", many, "devices: a claim has 32 at most"},
           {"0000:3b:00.0", "3b:00.0", "devices[0].gpu: '3b:00.0' is not a PCI address"},
           {"0000:3b:00.0", "../../x", "devices[0].gpu: '../../x' is not a PCI address"},
           {R"("type":null,"placement":null)", R"("type":null,"placement":1)",
            "devices[0].placement: a whole device has none"},
           {R"("pod_claim":null)", R"("pod_claim":"../gpu")",
            "pod_claim: it cannot be a pod's name of a claim"},
           {R"("request":"card")", R"("request":"../card")",
            "devices[0].request: it cannot be the name of a request"},
           {R"("request":"card")", R"("request":"")",
            "devices[0].request: it cannot be the name of a request"},
           {R"("pool":"node7/gpu-ferry")", R"("pool":"")",
            "devices[0].pool: it cannot be the name of a pool"},
           {R"("request":"card")", R"("request":"a/b/c")",
            "devices[0].request: it cannot be the name of a request"},
           {R"("request":"card")", R"("request":"a/")",
            "devices[0].request: it cannot be the name of a request"},
           {R"("request":"card",)", "", "devices[0].request: the key is missing"},
           {R"("pool":"node7/gpu-ferry")", R"("pool":"/")",
            "devices[0].pool: it cannot be the name of a pool"},
           {R"("name":"whole-a")", R"("name":"whole_a")",
            "devices[0].name: it cannot be the name of a device"},
           {R"("name":"whole-a")", R"("name":"vgpu-b")", "devices[1].name: two devices have it"},
           {R"("attributes":[)", R"("attributes":[{"name":"a b","int":1},)",
            "devices[0].attributes[0].name: it cannot be the name of an attribute"},
           {R"("attributes":[)", R"("attributes":[{"name":"a","bool":true},)",
            "devices[0].attributes[0].string: the key is missing"},
           {R"("string":"whole")", R"("string":")" + std::string(65, 'w') + '"',
            "devices[0].attributes[1].string: it is too long"},
           {R"("attributes":[)", many_attributes, "devices[0].attributes: there are too many"},
           {R"("resources":[)", R"("resources":["a/b","c/d",)", "devices[1].resources: there are too many"},
           {R"("resources":[)", R"("resources":[7,)", "devices[1].resources: expected a list of texts"},
           {"nvidia.com/NVIDIA_L40S-6Q", "", "devices[1].resources: one cannot be the name of a resource"},
           {"nvidia.com/", "LD_PRELOAD=", "devices[1].resources: one cannot be the name of a resource"},
           {"nvidia.com/", R"(a\nb)", "devices[1].resources: one cannot be the name of a resource"},
           {"nvidia.com/NVIDIA_L40S-6Q", std::string(254, 'a'),
            "devices[1].resources: one cannot be the name of a resource"},
           {R"("placement":4)", R"("placement":-4)", "devices[1].placement: expected a number from 0 on"},
           {R"("placement":4)", R"("placement":4.5)", "devices[1].placement: expected a number from 0 on"},
           {"nvidia-1150", "nvidia/1150", "devices[1].type: it cannot be the ID of a vGPU type"},
           {"nvidia-1150", "..", "devices[1].type: it cannot be the ID of a vGPU type"},
           {"nvidia-1150", std::string(65, '1'), "devices[1].type: it cannot be the ID of a vGPU type"}}) {
    const auto read = read_claim_request(with(text, from, to));
    ASSERT_FALSE(read) << from << " -> " << to;
    EXPECT_EQ(read.error().code, Errc::malformed_host);
    EXPECT_EQ(read.error().message, "the request: " + message) << from << " -> " << to;
  }
  const auto longest = read_claim_request(text + std::string(kLongestClaimMessage, ' '));
  ASSERT_FALSE(longest);
  EXPECT_EQ(longest.error().message, "the request: larger than 64 KiB");
}

TEST(ClaimAnswerText, OfAnotherFormIsRefusedWithTheKey) {
  const std::string text = claim_answer_text(some_devices());
  for (const auto& [from, to, message] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {R"("version":2)", R"("version":"2")", "version: expected 2, found no number"},
           {R"("devices":[)", R"("devices":{},"more":[)", "devices: expected a list"},
           {"b7064fe1", "B7064fe1", "devices[1].mdev_uuid: expected a UUID"},
           {"b7064fe1-", "b7064fe10", "devices[1].mdev_uuid: expected a UUID"},
           {R"("mdev_uuid":null)", R"("mdev_uuid":"b7064fe1-6802-5216-8eb4-f5580c656c4f")",
            "devices[0].function: expected a function or a mediated device, and not both"},
           {R"("function":"0000:3b:00.0")", R"("function":null)",
            "devices[0].function: expected a function or a mediated device, and not both"},
           {"0000:3b:00.0", "x", "devices[0].function: 'x' is not a PCI address"},
           {"/dev/vfio/vfio", "/etc/shadow", "devices[0].nodes[0].path: expected a file in /dev"},
           {"/dev/vfio/vfio", "/dev/../etc/shadow", "devices[0].nodes[0].path: expected a file in /dev"},
           {"438", "65535", "devices[0].nodes[0].mode: expected permission bits"},
           {R"("nodes":[)", R"("nodes":7,"more":[)", "devices[0].nodes: expected a list"}}) {
    const auto read = read_claim_answer(with(text, from, to));
    ASSERT_FALSE(read) << from << " -> " << to;
    EXPECT_EQ(read.error().code, Errc::malformed_host);
    EXPECT_EQ(read.error().message, "the answer of hostd: " + message);
  }
  for (const char* const broken : {R"({"version":2,"error":{"code":"lost","message":"m"}})",
                                   R"({"version":2,"error":{"code":"failed"}})",
                                   R"({"version":2,"error":{"code":"errno","message":"m"}})",
                                   R"({"version":2,"error":{"code":"errno","errno":0,"message":"m"}})",
                                   R"({"version":2,"error":{"code":"errno","errno":4096,"message":"m"}})",
                                   R"({"version":2,"error":7})", R"({"version":2})", "[]", ""}) {
    const auto read = read_claim_answer(broken);
    ASSERT_FALSE(read) << broken;
    EXPECT_EQ(read.error().code, Errc::malformed_host) << broken;
  }
}

Error through_an_answer(Error error) {
  const std::string text = claim_answer_text(fail(std::move(error)));
  EXPECT_LE(text.size(), kLongestClaimMessage);
  const auto read = read_claim_answer(text);
  EXPECT_FALSE(read);
  return read ? Error() : read.error();
}

TEST(ClaimAnswerText, KeepsTheErrorOfHostd) {
  for (const Errc code :
       {Errc::usage, Errc::invalid_config, Errc::not_found, Errc::refused, Errc::differs, Errc::stuck,
        Errc::unreachable, Errc::unsupported, Errc::malformed_host, Errc::failed}) {
    const Error read = through_an_answer({.code = code, .message = "in use", .hint = "stop it"});
    EXPECT_EQ(read.code, code);
    EXPECT_EQ(read.message, "in use");
    EXPECT_EQ(read.hint, "stop it");
  }
  const Error busy = through_an_answer(error_from_errno(EBUSY, "write"));
  EXPECT_EQ(busy.code, std::errc::device_or_resource_busy);
  EXPECT_THAT(busy.message, HasSubstr("write: "));
  EXPECT_THAT(busy.hint, IsEmpty());
  EXPECT_EQ(through_an_answer({.code = std::make_error_code(std::io_errc::stream), .message = "m"}).code,
            Errc::failed)
      << "a code of another library has no name in the answer";
}

TEST(ClaimAnswerText, CutsTextsThatAreTooLong) {
  const Error read = through_an_answer({.code = Errc::failed,
                                        .message = std::string(kLongestClaimMessage, '\x01'),
                                        .hint = std::string(kLongestClaimMessage, '\xff')});
  EXPECT_THAT(read.message, testing::EndsWith("\x01..."));
  EXPECT_THAT(read.hint, testing::EndsWith("..."));
}

}  // namespace
}  // namespace ferry::api
