// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/ready_handlers.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include <gmock/gmock.h>

#include "api/files.h"
#include "kata-manager/controller/kata_keeper.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using std::chrono::milliseconds;
using test::must;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

KnownRuntime ours(const std::string& name) {
  return {.name = name,
          .type = "io.containerd.kata.v2",
          .shim = {},
          .configuration = "/etc/ferry/kata/kata-gpu/configuration.toml"};
}
const KnownRuntime kRunc = {.name = "runc", .type = "io.containerd.runc.v2", .shim = {}, .configuration = {}};
const KnownRuntime kTheirs = {.name = "kata",
                              .type = "io.containerd.kata.v2",
                              .shim = {},
                              .configuration = "/opt/kata/share/defaults/configuration.toml"};

RuntimeState containerd(std::vector<KnownRuntime> runtimes) {
  return {.name = "containerd", .version = "2.1", .handlers = {}, .runtimes = std::move(runtimes)};
}

TEST(ReadyHandlers, AreThoseThatTheRuntimeHasWithOurConfiguration) {
  EXPECT_THAT(ready_handlers(containerd({kRunc, kTheirs, ours("b"), ours("a")})),
              Optional(ElementsAre("a", "b")));
  RuntimeState lists = containerd({ours("a"), ours("b")});
  lists.handlers = {"a", "runc"};
  EXPECT_THAT(ready_handlers(lists), Optional(ElementsAre("a")))
      << "its configuration has one that it has not loaded";
  EXPECT_THAT(ready_handlers(containerd({})), Optional(IsEmpty()));
  const RuntimeState crio{.name = "cri-o", .version = "1.31", .handlers = {{"a"}}, .runtimes = {}};
  EXPECT_EQ(ready_handlers(crio), std::nullopt);
}

TEST(ReadyHandlers, ReadBackAsTheyWere) {
  for (const std::set<std::string>& handlers : {std::set<std::string>(), {"a", "b-c"}})
    EXPECT_EQ(must(read_ready_handlers(handlers_file_text({.ready = handlers}))), handlers);
  EXPECT_THAT(
      must(read_ready_handlers(R"({"version": 2, "handlers": [{"name": "a", "later": 1}], "later": {}})")),
      ElementsAre("a"));
}

TEST(ReadyHandlers, OfAnotherFormAreRefused) {
  for (const char* bad :
       {"", "{", "[]", "null", "{}", R"({"version": 2})", R"({"version": 3, "handlers": []})",
        R"({"handlers": []})", R"({"version": 2, "handlers": {"name": "a"}})",
        R"({"version": 2, "handlers": ["a"]})", R"({"version": 2, "handlers": [{}]})",
        R"({"version": 2, "handlers": [{"name": 1}]})", "\xff"}) {
    const auto read = read_ready_handlers(bad);
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().code, Errc::malformed_host) << bad;
    EXPECT_FALSE(read_handlers_file(bad)) << bad;
  }
}

HandlersFile all_of_it() {
  return {.ready = {"kata-gpu"},
          .generation = 3,
          .applying = true,
          .others = {{.name = "a", .state = HandlerState::installing},
                     {.name = "b", .state = HandlerState::missing_artifact, .why = "registry.example/b:1"},
                     {.name = "kata-gpu", .state = HandlerState::pending},
                     {.name = "c", .state = HandlerState::leaving},
                     {.name = "d", .state = HandlerState::blocked, .why = "a pod runs with it"},
                     {.name = "e", .state = HandlerState::failed}},
          .error = "it cannot be read"};
}

TEST(HandlersFile, ReadsBackAsItWas) {
  for (const HandlersFile& file : {HandlersFile(), all_of_it(), HandlersFile{.ready = {}, .generation = 0}})
    EXPECT_EQ(must(read_handlers_file(handlers_file_text(file))), file);
}

TEST(HandlersFile, SaysWhatIsReadyToWhoKnowsNothingElse) {
  EXPECT_THAT(must(read_ready_handlers(handlers_file_text(all_of_it()))), ElementsAre("kata-gpu"));
}

TEST(HandlersFile, PassesOverWhatIsOfALaterOne) {
  const auto file = must(read_handlers_file(
      R"({"version": 2, "handlers": [], "later": 1,
          "others": [{"name": "a", "state": "dreaming"}, {"name": "b", "state": "leaving", "later": 1}]})"));
  EXPECT_THAT(file.others, ElementsAre(OtherHandler{.name = "b", .state = HandlerState::leaving}));
}

TEST(HandlersFile, OfAnotherFormIsRefusedButForWhatIsReady) {
  for (const char* bad :
       {R"("generation": -1)", R"("generation": "1")", R"("generation": 1.5)", R"("applying": 1)",
        R"("applying": null)", R"("others": {})", R"("others": ["a"])", R"("others": [{"state": "leaving"}])",
        R"("others": [{"name": "a"}])", R"("others": [{"name": 1, "state": "leaving"}])",
        R"("others": [{"name": "a", "state": 1}])",
        R"("others": [{"name": "a", "state": "leaving", "why": 1}])",
        R"("others": [{"name": "a", "state": "leaving"}, {"name": "a", "state": "pending"}])",
        R"("error": 1)"}) {
    const std::string text = std::string(R"({"version": 2, "handlers": [{"name": "a"}], )") + bad + "}";
    const auto read = read_handlers_file(text);
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().code, Errc::malformed_host) << bad;
    EXPECT_THAT(must(read_ready_handlers(text)), ElementsAre("a")) << bad;
  }
}

class KataKeeperLoopTest : public testing::Test, public ContainerRuntime {
 protected:
  Result<RuntimeState> state() override {
    ++asked_;
    if (runs_) return containerd(has_);
    return fail(Errc::not_found, "nobody listens");
  }
  Result<std::vector<RunningPod>> pods() override { return fail(Errc::failed, "not asked here"); }

  void begin(milliseconds longest = std::chrono::minutes(1)) {
    watch_ = std::make_unique<KataKeeperLoop>(
        *loop_, host_, keeper_, "/run/containerd/containerd.sock", false,
        KataKeeperLoop::Pauses{.settling = milliseconds(1), .first = milliseconds(1), .longest = longest});
  }
  bool until(const std::function<bool()>& there) {
    stop_ = {};
    const auto end = EventLoop::Clock::now() + std::chrono::seconds(10);
    std::function<void()> look = [&] {
      if (there() || EventLoop::Clock::now() > end) return void(stop_.request_stop());
      look_ = loop_->at(EventLoop::Clock::now() + milliseconds(1), look);
    };
    look();
    loop_->run(stop_.get_token());
    loop_->cancel(look_);
    return there();
  }
  std::string text() const { return host_.read_file(api::kReadyHandlersFile).value_or("(none)"); }
  bool says(const std::set<std::string>& handlers) {
    return until([&] { return text() == handlers_file_text({.ready = handlers}); });
  }

  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
  test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
  std::stop_source stop_;
  EventLoop::Timer look_;
  bool runs_ = true;
  int asked_ = 0;
  std::vector<KnownRuntime> has_ = {kRunc, ours("kata-gpu")};
  KataKeeper keeper_{{.host = &host_, .writer = nullptr, .asked = this}, {}};
  std::unique_ptr<KataKeeperLoop> watch_;
};

TEST_F(KataKeeperLoopTest, SaysWhatTheRuntimeHasAndAgainWhenItHasStarted) {
  scratch_.directory("run/containerd");
  begin();
  EXPECT_TRUE(says({"kata-gpu"}));
  has_ = {kRunc};
  const int before = asked_;
  scratch_.file("run/containerd/containerd.sock", "");
  EXPECT_TRUE(says({}));
  EXPECT_GT(asked_, before);
}

TEST_F(KataKeeperLoopTest, AsksUntilTheRuntimeAnswersAndKeepsWhatItHasSaid) {
  runs_ = false;
  begin();
  ASSERT_TRUE(until([&] { return asked_ > 3; })) << "it may be starting";
  EXPECT_EQ(text(), "(none)");
  runs_ = true;
  scratch_.directory("run/containerd");
  EXPECT_TRUE(says({"kata-gpu"}));
  runs_ = false;
  scratch_.file("run/containerd/containerd.sock", "");
  const int before = asked_;
  ASSERT_TRUE(until([&] { return asked_ > before + 3; }));
  EXPECT_EQ(text(), handlers_file_text({.ready = {"kata-gpu"}})) << "no pod is started meanwhile either";
}

TEST_F(KataKeeperLoopTest, HearsOfAnotherDesiredState) {
  KataKeeper obeying({.host = &host_,
                      .writer = nullptr,
                      .asked = this,
                      .runtime_for = [](const ClassFile&) -> Result<KataRuntime> {
                        return fail(Errc::not_found, "not here");
                      },
                      .devices = {}},
                     {});
  watch_ = std::make_unique<KataKeeperLoop>(
      *loop_, host_, obeying, "/run/containerd/containerd.sock", true,
      KataKeeperLoop::Pauses{
          .settling = milliseconds(1), .first = milliseconds(1), .longest = std::chrono::minutes(1)});
  scratch_.directory("run/containerd");
  EXPECT_TRUE(says({"kata-gpu"}));
  const DesiredClasses desired{.generation = 4, .config = {}, .classes = {}};
  scratch_.file(api::kDesiredClassesFile, desired_classes_text(desired));
  EXPECT_TRUE(until([&] { return text().find("\"generation\": 4") != std::string::npos; }));
  EXPECT_THAT(text(), testing::HasSubstr("not here"));
  watch_.reset();
}

TEST_F(KataKeeperLoopTest, HearsOfChangesThatAreNotReported) {
  scratch_.directory("run/containerd");
  begin(milliseconds(5));
  EXPECT_TRUE(says({"kata-gpu"}));
  has_.push_back(ours("kata-vgpu"));
  EXPECT_TRUE(says({"kata-gpu", "kata-vgpu"})) << "a reload";
  scratch_.remove(api::kReadyHandlersFile);
  EXPECT_TRUE(says({"kata-gpu", "kata-vgpu"})) << "somebody has taken it away";
}

}  // namespace
}  // namespace ferry::kata
