// SPDX-License-Identifier: Apache-2.0
// Kubelets, and strangers, that do not do what the protocol says.
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <future>
#include <memory>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include "deviceplugin.grpc.pb.h"
#include "pluginregistration.grpc.pb.h"
#include "tests/kubevirt-plugin/plugin_caller.h"
#include "tests/kubevirt-plugin/plugin_fixture.h"
#include "tests/support/event_flood.h"

// Input and output of the functions below, which take no context.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
namespace {
std::atomic<bool> no_descriptor_to_be_had = false;
std::atomic<int> asked_in_vain = 0;
std::atomic<int> held_at = -1;
}  // namespace
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// In place of the C library's. A process that has truly no descriptor left cannot be played here: a
/// sanitizer's look at the type of an object takes a pipe, and without one it finds the object broken.
extern "C" int accept4(int socket, sockaddr* address, socklen_t* length, int flags) {
  if (!no_descriptor_to_be_had)
    return static_cast<int>(::syscall(SYS_accept4, socket, address, length, flags));
  ++asked_in_vain;
  errno = EMFILE;
  return -1;
}

/// A signal's: its thread says so, and does nothing until the other end is closed.
extern "C" void hold(int /*signal*/) {
  const int before = errno;
  const int end = held_at;
  char byte = 0;
  if (::write(end, &byte, 1) == 1) [[maybe_unused]]
    const auto closed = ::read(end, &byte, 1);
  errno = before;
}

namespace ferry::plugin {
namespace {

using namespace plugin_test;
using testing::HasSubstr;
using testing::SizeIs;

class PluginSocketTest : public plugin_test::Fixture {
 protected:
  static void say(const UniqueFd& connection, std::string_view words) {
    EXPECT_EQ(::send(connection.get(), words.data(), words.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(words.size()));
  }
  /// Kubelet and plugin understand each other.
  void expect_service() {
    ASSERT_TRUE(allocatable(kGpu, 1));
    EXPECT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}, true).ok());
  }
};

/// Keeps a thread from its work as long as this lives.
class Held {
 public:
  explicit Held(std::jthread& thread) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    theirs_.reset(ends[0]);
    ours_.reset(ends[1]);
    held_at = theirs_.get();
    struct sigaction action {};
    action.sa_handler = hold;
    EXPECT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
    EXPECT_EQ(::pthread_kill(thread.native_handle(), SIGUSR1), 0);
    char byte = 0;
    EXPECT_EQ(::read(ours_.get(), &byte, 1), 1);
  }

 private:
  UniqueFd theirs_;
  UniqueFd ours_;  // goes first, and lets it go
};

constexpr std::string_view kHttp2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

TEST_F(PluginSocketTest, MindsNoStrangersOnItsSocket) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto silent = connect_to(directory() / kGpuSocket);
  const auto other_protocol = connect_to(directory() / kGpuSocket);
  say(other_protocol, "GET / HTTP/1.1\r\n\r\n");
  const auto half = connect_to(directory() / kGpuSocket);
  say(half, kHttp2.substr(0, 10));
  ::shutdown(half.get(), SHUT_WR);
  const auto no_frames = connect_to(directory() / kGpuSocket);
  say(no_frames, kHttp2);
  say(no_frames, std::string(64, '\xff'));
  { const auto gone_at_once = connect_to(directory() / kGpuSocket); }
  expect_service();
}

TEST_F(PluginSocketTest, RestsWhileNoDescriptorIsToBeHad) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  pollfd answer{.fd = connection.get(), .events = POLLIN, .revents = 0};
  asked_in_vain = 0;
  no_descriptor_to_be_had = true;
  const auto address = address_of(directory() / kGpuSocket);
  ASSERT_EQ(::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  say(connection, kHttp2);
  EXPECT_EQ(::poll(&answer, 1, 600), 0) << "nobody can take it";
  EXPECT_LE(asked_in_vain, 3) << "it rests for a second";
  no_descriptor_to_be_had = false;
  EXPECT_EQ(::poll(&answer, 1, 20'000), 1) << "it is taken all the same";
}

TEST_F(PluginSocketTest, RegistersWithTheKubeletThatComesAfterOneThatClosesHalfWay) {
  const UniqueFd listener = bind_socket(directory() / "kubelet.sock");
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  add_gpu("0000:01:00.0", 15);
  start();
  for (int i = 0; i < 3; ++i) {
    const UniqueFd connection(::accept(listener.get(), nullptr, nullptr));
    ASSERT_TRUE(connection.valid());
    say(connection, std::string_view("\0\0\0\4\0\0\0\0\0", 9).substr(0, i == 0 ? 4 : 9));
  }
  ASSERT_TRUE(kubelet->start());
  expect_service();
}

TEST_F(PluginSocketTest, RegistersAllResourcesOverOneConnection) {
  const UniqueFd listener = bind_socket(directory() / "kubelet.sock");
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16, "10de:2330");
  start();
  const UniqueFd connection(::accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(connection.valid());
  say(connection, std::string_view("\0\0\0\4\0\0\0\0\0", 9));
  std::string heard;
  while (heard.find(kGpuSocket) == std::string::npos || heard.find(kH100Socket) == std::string::npos) {
    pollfd more{.fd = connection.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&more, 1, 20'000), 1) << "the other one went elsewhere";
    std::array<char, 4096> part{};
    const auto size = ::read(connection.get(), part.data(), part.size());
    ASSERT_GT(size, 0);
    heard.append(part.data(), static_cast<std::size_t>(size));
  }
}

TEST_F(PluginSocketTest, DoesNotWaitForAKubeletThatHangsWhenAnotherComes) {
  const UniqueFd listener = bind_socket(directory() / "kubelet.sock");
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16, "10de:2330");
  start();
  const UniqueFd hangs(::accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(hangs.valid());
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(kubelet->start());
  expect_service();
  EXPECT_TRUE(allocatable(kH100, 1)) << "nothing is sent over the old connection";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << "not until the call's deadline";
}

// Its socket stays the same, so that no news of it comes.
TEST_F(PluginSocketTest, TriesAgainEverMoreSlowlyWhatAKubeletDoesNotAnswer) {
  constexpr int kUnanswered = 6;
  options.unanswered = 20ms;
  std::promise<void> awake;
  const auto calls = std::make_shared<std::atomic<int>>(0);
  kubelet = make_kubelet(standin::Options{.on_register = [calls, woken = awake.get_future().share()] {
    if ((*calls)++ < kUnanswered) woken.wait();
  }});
  add_gpu("0000:01:00.0", 15);
  const auto begin = std::chrono::steady_clock::now();
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kUnanswered * options.unanswered + 126ms)
      << "pauses of 2, 4, 8, 16, 32 and 64 ms";
  awake.set_value();  // the kubelet takes those calls late, whom nobody waits for any more
  ASSERT_TRUE(calls_become(kUnanswered + 1));
  expect_service();
}

TEST_F(PluginSocketTest, GoesOnAskingAKubeletOfAnotherVersion) {
  kubelet = make_kubelet(standin::Options{.version = "v1beta2"});
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(calls_become(3));
  EXPECT_THAT(kubelet->registrations().front().error, HasSubstr("v1beta1"));
  kubelet->stop();
  kubelet = make_kubelet();
  ASSERT_TRUE(kubelet->start());
  expect_service();
}

TEST_F(PluginSocketTest, RegistersOnceMoreWithAKubeletThatTakesARegistrationAndNeverReads) {
  options.unread = 20ms;
  kubelet = make_kubelet(standin::Options{.reads_lists = false});
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(calls_become(3));
  for (const auto& one : kubelet->registrations()) EXPECT_EQ(one.error, "");
  kubelet->stop();
  kubelet = make_kubelet();
  ASSERT_TRUE(kubelet->start());
  expect_service();
}

// Its dialling back alone may take 10 s. Others register meanwhile.
TEST_F(PluginSocketTest, WaitsForAKubeletThatIsSlowToTakeARegistration) {
  const auto slow = std::make_shared<std::promise<void>>();
  const auto released = slow->get_future().share();
  std::atomic<int> calls = 0;
  const EndFirst end_first(*this);
  kubelet = make_kubelet(standin::Options{.on_register = [&, released] {
    if (calls++ == 0) released.wait();
  }});
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16, "10de:2330");
  start_both();
  EXPECT_TRUE(eventually([](const auto& resources) { return resources.size() == 1; }));
  slow->set_value();
  EXPECT_TRUE(allocatable(kGpu, 1) && allocatable(kH100, 1));
  ASSERT_TRUE(calls_become(2));
  EXPECT_EQ(kubelet->registrations().size(), 2U) << "each once";
}

// As newer ones do whose registration server has failed. The streams stay, whether or not it hears of the
// plugin again.
TEST_F(PluginSocketTest, StaysWithAKubeletThatMakesItsSocketAnew) {
  add_gpu("0000:01:00.0", 15);
  for (const bool refuses : {true, false}) {
    kubelet = make_kubelet(standin::Options{.refuse_second_registration = refuses});
    start_both();
    ASSERT_TRUE(allocatable(kGpu, refuses ? 1 : 2));
    ASSERT_TRUE(kubelet->renew_socket());
    add_gpu(refuses ? "0000:02:00.0" : "0000:03:00.0", refuses ? 16 : 17);
    EXPECT_TRUE(allocatable(kGpu, refuses ? 2 : 3));
    EXPECT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}, true).ok());
    ASSERT_TRUE(stop());
    kubelet->stop();
  }
}

// The kernel keeps so many events, and drops the rest.
TEST_F(PluginSocketTest, LooksByItselfWhatHasBecomeOfTheDirectoryWhenItsEventsWereLost) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  {
    const Held held(plugin);
    test::flood(directory());
  }
  add_gpu("0000:81:00.0", 30, "10de:2330");  // listed a moment later
  ASSERT_TRUE(allocatable(kH100, 1));
  EXPECT_EQ(registrations(kGpu), 1U) << "nothing has become of it";
  {
    const Held held(plugin);
    test::flood(directory());
    std::filesystem::remove(directory() / kGpuSocket);
  }
  ASSERT_TRUE(calls_become(3));
  EXPECT_TRUE(std::filesystem::exists(directory() / kGpuSocket));
  EXPECT_EQ(registrations(kGpu), 2U) << "its socket is another";
  {
    const Held held(plugin);
    test::flood(directory());
    ASSERT_TRUE(kubelet->renew_socket());
  }
  ASSERT_TRUE(calls_become(5)) << "the kubelet's socket is another";
  expect_service();
}

TEST_F(PluginSocketTest, AnswersAfterCallersThatLeaveInTheMiddle) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  int left = 0;
  for (int i = 0; i < 100; ++i) {
    const auto channel = grpc::CreateChannel("unix:" + (directory() / kGpuSocket).string(),
                                             grpc::InsecureChannelCredentials());
    ASSERT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + kPatience));
    grpc::ClientContext context;
    v1beta1::AllocateRequest request;
    request.add_container_requests()->add_devices_ids("0000:01:00.0");
    v1beta1::AllocateResponse response;
    grpc::CompletionQueue queue;
    const auto stub = v1beta1::DevicePlugin::NewStub(channel);
    const auto call = stub->AsyncAllocate(&context, request, &queue);
    grpc::Status status;
    call->Finish(&response, &status, this);
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(5 * i);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    context.TryCancel();
    void* tag = nullptr;
    bool done = false;
    ASSERT_TRUE(queue.Next(&tag, &done));
    if (!status.ok()) ++left;
  }
  EXPECT_GT(left, 0);
  expect_service();
}

TEST_F(PluginSocketTest, AnswersForTenThousandIds) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  std::vector<std::string> many;
  many.reserve(10000);
  for (int i = 0; i < 10000; ++i) many.push_back("device-" + std::to_string(i));
  EXPECT_EQ(kubelet->allocate(kGpu, many, true).status, 5) << "NOT_FOUND";
  const auto preferred = kubelet->prefer(kGpu, many, {"0000:01:00.0"}, 5000);
  ASSERT_TRUE(preferred.ok()) << preferred.error;
  EXPECT_THAT(preferred.ids, SizeIs(5000));
  expect_service();
}

TEST_F(PluginSocketTest, RefusesWhatIsTooLargeAndGoesOn) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto answer = kubelet->allocate(kGpu, {std::string(std::size_t{5} << 20, 'x')}, true);
  EXPECT_EQ(answer.status, 8) << "RESOURCE_EXHAUSTED";
  EXPECT_THAT(answer.error, HasSubstr("larger than 4 MiB"));
  expect_service();
}

TEST_F(PluginSocketTest, ListsHundredsOfDevices) {
  for (unsigned i = 0; i < 256; ++i) {
    char address[16];
    std::snprintf(address, sizeof(address), "0000:%02x:00.0", i);
    add_gpu(address, i);
  }
  start_both();
  EXPECT_TRUE(allocatable(kGpu, 256));
}

// The kubelet's other way: it finds the socket, asks what it is, and connects to it again for the rest.
TEST_F(PluginSocketTest, AnswersAKubeletThatFindsIt) {
  options.plugin_watcher = true;
  add_gpu("0000:01:00.0", 15);
  start();
  ASSERT_TRUE(advertised_becomes([](const auto& file) { return file.is_object(); }));
  const Caller caller(directory() / kGpuSocket);
  using Registration = pluginregistration::Registration::Stub;
  using DevicePlugin = v1beta1::DevicePlugin::Stub;
  pluginregistration::PluginInfo info;
  ASSERT_TRUE(caller.ask(&Registration::GetInfo, pluginregistration::InfoRequest(), info).ok());
  EXPECT_EQ(info.type(), "DevicePlugin");
  EXPECT_EQ(info.name(), kGpu);
  EXPECT_EQ(info.endpoint(), "") << "the same socket, wherever the kubelet sees it";
  ASSERT_EQ(info.supported_versions_size(), 1);
  EXPECT_EQ(info.supported_versions(0), "v1beta1");
  pluginregistration::RegistrationStatus status;
  status.set_plugin_registered(true);
  pluginregistration::RegistrationStatusResponse noted;
  EXPECT_TRUE(caller.ask(&Registration::NotifyRegistrationStatus, status, noted).ok());
  v1beta1::DevicePluginOptions can;
  EXPECT_TRUE(caller.ask(&DevicePlugin::GetDevicePluginOptions, v1beta1::Empty(), can).ok());
  EXPECT_TRUE(can.get_preferred_allocation_available());
  v1beta1::PreStartContainerResponse started;
  EXPECT_TRUE(
      caller.ask(&DevicePlugin::PreStartContainer, v1beta1::PreStartContainerRequest(), started).ok());

  // Read, and dropped: shown again, under the same name.
  struct stat before {};
  ASSERT_EQ(::stat((directory() / kGpuSocket).c_str(), &before), 0);
  {
    grpc::ClientContext context;
    const auto lists = DevicePlugin(caller.channel()).ListAndWatch(&context, v1beta1::Empty());
    v1beta1::ListAndWatchResponse list;
    ASSERT_TRUE(lists->Read(&list));
    EXPECT_EQ(list.devices_size(), 1);
    context.TryCancel();
  }
  const auto watch = DirectoryWatch::open(directory());
  ASSERT_TRUE(watch);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  struct stat now = before;
  while (now.st_ino == before.st_ino && std::chrono::steady_clock::now() < end) {
    pollfd fd{.fd = watch->fd(), .events = POLLIN, .revents = 0};
    ::poll(&fd, 1, 100);
    watch->read();
    if (::stat((directory() / kGpuSocket).c_str(), &now) != 0) now = before;
  }
  EXPECT_NE(now.st_ino, before.st_ino);
}

TEST_F(PluginSocketTest, AnswersAMethodThatItDoesNotKnow) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const Caller caller(directory() / kGpuSocket);
  for (int time = 0; time < 3; ++time) {
    const auto status = caller.send("/v1beta2.DevicePlugin/Later", {});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(), HasSubstr("/v1beta2.DevicePlugin/Later"));
  }
  expect_service();
}

// As kubelets of 2026 have it: the second instance is refused as long as the first one's list is being read.
TEST_F(PluginSocketTest, HandsOverToASuccessorWithoutALostOrDoubledResource) {
  kubelet = make_kubelet(standin::Options{.refuse_second_registration = true});
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  PluginOptions successor_options = options;
  successor_options.advertised_file = "run/ferry/plugin/successor.json";
  const std::jthread successor(
      [&](const std::stop_token& token) { EXPECT_TRUE(run_plugin(kernel, successor_options, token)); });
  ASSERT_TRUE(calls_become(2));
  EXPECT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}, true).ok()) << "the first one still serves";
  EXPECT_TRUE(stop());
  EXPECT_TRUE(allocatable(kGpu, 1)) << "and then the second";
  EXPECT_THAT(kubelet->resources(), SizeIs(1));
}

}  // namespace
}  // namespace ferry::plugin
