// SPDX-License-Identifier: Apache-2.0
// What is asked of the plugin that the stand-in for the kubelet never asks, as it comes over the socket.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <limits>
#include <list>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include "deviceplugin.grpc.pb.h"
#include "pluginregistration.grpc.pb.h"
#include "tests/kubevirt-plugin/plugin_caller.h"
#include "tests/kubevirt-plugin/plugin_fixture.h"
#include "tests/support/log_of.h"

namespace ferry::plugin {
namespace {

using namespace plugin_test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using DevicePlugin = v1beta1::DevicePlugin::Stub;
using Registration = pluginregistration::Registration::Stub;
using Ids = std::vector<std::string>;
using Containers = std::vector<Ids>;

constexpr const char* kFirst = "0000:01:00.0";
constexpr const char* kSecond = "0000:02:00.0";
constexpr const char* kGpuVariable = "PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090";

class PluginCallsTest : public plugin_test::Fixture {
 protected:
  void start_with_two_gpus() {
    add_gpu(kFirst, 15);
    add_gpu(kSecond, 16);
    start_both();
    ASSERT_TRUE(allocatable(kGpu, 2));
  }
  /// The plugin, for whoever finds its socket by itself.
  void start_to_be_found() {
    options.plugin_watcher = true;
    add_gpu(kFirst, 15);
    start();
    ASSERT_TRUE(advertised_becomes([](const auto& file) { return file.is_object(); }));
  }
  Caller caller(const grpc::ChannelArguments& arguments = {}) const {
    return Caller(directory() / kGpuSocket, arguments);
  }
  grpc::Status allocate(const Containers& containers, v1beta1::AllocateResponse& response) const {
    v1beta1::AllocateRequest request;
    for (const auto& ids : containers)
      request.add_container_requests()->mutable_devices_ids()->Assign(ids.begin(), ids.end());
    return caller().ask(&DevicePlugin::Allocate, request, response);
  }
  /// Of the first resource, each container's share of what is available.
  struct Preference {
    Ids available;
    int size = 0;
  };
  Containers preferred(const std::vector<Preference>& preferences) const {
    v1beta1::PreferredAllocationRequest request;
    for (const auto& preference : preferences) {
      auto& container = *request.add_container_requests();
      container.mutable_available_deviceids()->Assign(preference.available.begin(),
                                                      preference.available.end());
      container.set_allocation_size(preference.size);
    }
    v1beta1::PreferredAllocationResponse response;
    const auto status = caller().ask(&DevicePlugin::GetPreferredAllocation, request, response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    Containers chosen;
    for (const auto& container : response.container_responses())
      chosen.emplace_back(container.deviceids().begin(), container.deviceids().end());
    return chosen;
  }
};

// Newer kubelets say localhost, older ones the socket's path, with and without its slashes written out.
// It can see no socket of the kubelet's own there: that none lists its pods is no answer.
TEST_F(PluginCallsTest, GivesNothingToAKubeletThatFindsItAndListsNoPods) {
  options.pod_resources.patience = 10ms;
  start_to_be_found();
  v1beta1::AllocateResponse response;
  const auto status = allocate({{kFirst}}, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              testing::AllOf(HasSubstr("the users of devices are not known: there is no /"),
                             HasSubstr("though a kubelet may be there")));
  EXPECT_EQ(advertised()["state_generation"], 0) << "nor does hostd get a word";
  ASSERT_TRUE(kubelet->start());
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool given = false;  // each time it is asked first, which may take longer than that patience
  while (!given && std::chrono::steady_clock::now() < end) given = allocate({{kFirst}}, response).ok();
  EXPECT_TRUE(given);
}

TEST_F(PluginCallsTest, AnswersWhateverItsCallerTakesItsNameToBe) {
  start_with_two_gpus();
  const auto path = (directory() / kGpuSocket).string();
  for (const auto& authority : Ids{"localhost", path, "%2Fvar%2Flib%2Fkubelet", "node-1.example:10250"}) {
    grpc::ChannelArguments arguments;
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, authority);
    v1beta1::DevicePluginOptions can;
    const auto status = caller(arguments).ask(&DevicePlugin::GetDevicePluginOptions, v1beta1::Empty(), can);
    EXPECT_TRUE(status.ok()) << authority << ": " << status.error_message();
  }
}

TEST_F(PluginCallsTest, AnswersAnAllocateForTwoContainersInTheirOrder) {
  start_with_two_gpus();
  v1beta1::AllocateResponse response;
  ASSERT_TRUE(allocate({{kSecond}, {kFirst}}, response).ok());
  ASSERT_EQ(response.container_responses_size(), 2);
  EXPECT_EQ(response.container_responses(0).envs().at(kGpuVariable), kSecond);
  EXPECT_EQ(response.container_responses(0).devices(1).host_path(), "/dev/vfio/16");
  EXPECT_EQ(response.container_responses(1).envs().at(kGpuVariable), kFirst);
  EXPECT_EQ(response.container_responses(1).devices(1).host_path(), "/dev/vfio/15");
}

TEST_F(PluginCallsTest, RefusesAnAllocateForNothingAndForOneDeviceTwice) {
  start_with_two_gpus();
  const std::vector<std::pair<Containers, std::string>> requests = {
      {{}, "the request is for no container"},
      {{{}}, "a container asks for no device"},
      {{{kFirst}, {}}, "a container asks for no device"},
      {{{kFirst, kFirst}}, std::string(kFirst) + ": asked for twice"},
      {{{kFirst}, {kFirst}}, std::string(kFirst) + ": asked for twice"}};
  for (const auto& [containers, why] : requests) {
    v1beta1::AllocateResponse response;
    const auto status = allocate(containers, response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(why));
  }
  EXPECT_TRUE(kubelet->allocate(kGpu, 2).ok());
}

TEST_F(PluginCallsTest, RefusesBytesThatAreNoRequest) {
  start_with_two_gpus();
  for (const std::string method :
       {"/v1beta1.DevicePlugin/Allocate", "/v1beta1.DevicePlugin/GetPreferredAllocation",
        "/pluginregistration.Registration/NotifyRegistrationStatus"}) {
    // No message; one that ends in the middle; and text that is no UTF-8, where each of them has some.
    for (const std::string bytes :
         {"\xff\xff\xff\xff", "\x0a\x7f", "\x0a\x04\x0a\x02\xff\xff\x12\x02\xff\xff"}) {
      const auto status = caller().send(method, bytes);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
      EXPECT_EQ(status.error_message(), "the request cannot be read") << method;
    }
  }
  EXPECT_TRUE(kubelet->allocate(kGpu, 2).ok());
}

// An error would fail the pod.
TEST_F(PluginCallsTest, PrefersWhatThereIsWhereThatIsLessThanIsAskedFor) {
  start_with_two_gpus();
  EXPECT_THAT(preferred({}), IsEmpty());
  EXPECT_THAT(preferred({{.available = {}, .size = 1}}), ElementsAre(IsEmpty()));
  EXPECT_THAT(preferred({{.available = {kSecond, kFirst}, .size = std::numeric_limits<int>::max()},
                         {.available = {kSecond}, .size = 1}}),
              ElementsAre(ElementsAre(kSecond, kFirst), ElementsAre(kSecond)));
}

TEST_F(PluginCallsTest, LetsAContainerStartWhoseDevicesItDoesNotKnow) {
  start_with_two_gpus();
  v1beta1::PreStartContainerRequest request;
  request.add_devices_ids("0000:ff:00.0");
  v1beta1::PreStartContainerResponse started;
  EXPECT_TRUE(caller().ask(&DevicePlugin::PreStartContainer, request, started).ok())
      << "it has never subscribed";
}

// The kubelet tries again by itself.
TEST_F(PluginCallsTest, SaysThatAKubeletHasFoundItAndDoesNotTakeItAndIsThereWhenItDoes) {
  const test::LogOf log;
  start_to_be_found();
  pluginregistration::RegistrationStatus status;
  status.set_error("plugin type is not supported");
  pluginregistration::RegistrationStatusResponse noted;
  EXPECT_TRUE(caller().ask(&Registration::NotifyRegistrationStatus, status, noted).ok());
  EXPECT_THAT(log.text(), HasSubstr("[error] the kubelet does not take " + std::string(kGpu) +
                                    ": plugin type is not supported"));

  pluginregistration::PluginInfo info;
  EXPECT_TRUE(caller().ask(&Registration::GetInfo, pluginregistration::InfoRequest(), info).ok());
  const auto reader = caller();
  grpc::ClientContext context;
  const auto lists = DevicePlugin(reader.channel()).ListAndWatch(&context, v1beta1::Empty());
  v1beta1::ListAndWatchResponse list;
  ASSERT_TRUE(lists->Read(&list));
  EXPECT_EQ(list.devices_size(), 1);
  EXPECT_TRUE(stop()) << "before the log";
}

// Or the kubelet before it cannot end, and has its connections open. What the new one knows is asked all the
// same, before anything counts as released.
TEST_F(PluginCallsTest, LearnsThatTheKubeletIsAnotherThoughSomebodyReadsOn) {
  std::atomic<bool> is_another = false;
  std::promise<void> asked;
  const EndFirst end_first(*this);
  serve_pods([&] {
    if (is_another.exchange(false)) asked.set_value();
  });
  options.pod_resources.period = std::chrono::hours(1);
  start_with_two_gpus();
  const auto reader = caller();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 2 * kPatience);
  const auto lists = DevicePlugin(reader.channel()).ListAndWatch(&context, v1beta1::Empty());
  v1beta1::ListAndWatchResponse list;
  ASSERT_TRUE(lists->Read(&list));
  kubelet->stop();
  is_another = true;
  ASSERT_TRUE(kubelet->start());
  ASSERT_TRUE(allocatable(kGpu, 2));
  EXPECT_EQ(asked.get_future().wait_for(kPatience), std::future_status::ready);
  context.TryCancel();
}

// Its flow control is full after one list. What it has not read when the next one comes it need not read.
TEST_F(PluginCallsTest, GoesOnThoughSomebodyDoesNotReadAndKeepsForHimTheNewestListAlone) {
  constexpr unsigned kCards = 40;
  options.rules.companions = Companions::devices;
  Ids gpus;
  for (unsigned card = 1; card <= kCards; ++card) {
    add_gpu(gpus.emplace_back(fmt::format("0000:{:02x}:00.0", card)), card);
    add_audio(fmt::format("0000:{:02x}:00.1", card), card);
  }
  start_both();
  ASSERT_TRUE(allocatable(kGpu, kCards) && allocatable(kAudio, kCards));

  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const Caller slow(directory() / "kubevirt-AD102_HIGH_DEFINITION_AUDIO_CONTROLLER.sock", arguments);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto lists = DevicePlugin(slow.channel()).ListAndWatch(&context, v1beta1::Empty());
  v1beta1::ListAndWatchResponse list;
  ASSERT_TRUE(lists->Read(&list));
  const auto healthy = [&list] {
    return std::ranges::count(list.devices(), "Healthy", &v1beta1::Device::health);
  };
  EXPECT_EQ(healthy(), kCards);

  // Each of them holds its card's audio function back.
  for (const auto& gpu : gpus) ASSERT_TRUE(kubelet->allocate(kGpu, {gpu}).ok());
  ASSERT_TRUE(allocatable(kAudio, 0)) << "a reader gets the list";
  int read = 0;
  while (healthy() > 0 && lists->Read(&list)) ++read;
  EXPECT_EQ(healthy(), 0);
  EXPECT_LE(read, 3);
  context.TryCancel();
}

// One deadline for all of them: a pod's grace period is no longer where there are more resources.
TEST_F(PluginCallsTest, EndsInOneDeadlineThoughReadersOfEachListDoNotRead) {
  unsigned group = 0;
  for (const char* const model : {"10de:2684", "10de:2330", "10de:20b5", "10de:2235", "10de:26b9"})
    for (int card = 0; card < 8; ++card, ++group)
      add_gpu(fmt::format("0000:{:02x}:00.0", group), group, model);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 8) && allocatable(kH100, 8));

  struct Reader {
    explicit Reader(const std::filesystem::path& socket) : caller(socket, hardly_anything()) {}
    static grpc::ChannelArguments hardly_anything() {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
      arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
      return arguments;
    }
    Caller caller;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1beta1::ListAndWatchResponse>> lists =
        DevicePlugin(caller.channel()).ListAndWatch(&context, v1beta1::Empty());
  };
  std::list<Reader> readers;
  for (const auto& file : std::filesystem::directory_iterator(directory()))
    if (file.path().filename().string().starts_with("kubevirt-"))
      readers.emplace_back(file.path()).lists->WaitForInitialMetadata();
  ASSERT_EQ(readers.size(), 5U);

  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(stop());
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, 900ms) << "nobody was waited for, and this shows nothing";
  EXPECT_LT(took, 3s) << "five of them would be waited for, one after the other";
  for (auto& reader : readers) reader.context.TryCancel();
}

}  // namespace
}  // namespace ferry::plugin
