// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/runtime_change.h"

#include <cstdlib>
#include <functional>
#include <optional>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "kata-manager/runtimes/runtime_record.h"
#include "tests/kata-manager/faulty_host.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kMain = "etc/runtime/main";
constexpr const char* kDropIn = "etc/runtime/drop-in";

/// A runtime whose files name its runtimes, a word each. With the word "broken" it does not start, with
/// "denies" it runs without CRI, and with "ends" it ends after its first answer.
class FakeRuntime final : public ContainerRuntime, public RuntimeControl {
 public:
  explicit FakeRuntime(const HostFs& host) : host_(host) { static_cast<void>(act()); }

  Result<RuntimeState> state() override {
    if (!there) return fail(Errc::not_found, "there is no socket");
    if (slow && acts < 1) return fail(Errc::unreachable, "no answer in time");
    if (!runs_) return fail(Errc::not_found, "nobody listens");
    if (has("denies")) return fail(Errc::unsupported, "it runs without CRI: no snapshotter");
    if (has("ends") && answers_++ > 0) return fail(Errc::not_found, "nobody listens any more");
    RuntimeState out{.name = "fake", .version = "1", .handlers = {}, .runtimes = {}};
    if (reports_handlers) {
      auto& known = out.runtimes.emplace();
      for (const std::string& name : names_) {
        known.push_back({.name = name,
                         .type = "io.containerd." + name + ".v2",
                         .shim = "/shim",
                         .configuration = "/configuration"});
      }
    }
    return out;
  }
  Result<std::vector<RunningPod>> pods() override {
    if (!pods_known) return fail(Errc::failed, "no pods are listed");
    return pods_;
  }
  std::string text() const override { return "restart fake.service"; }
  std::optional<std::string> harm() const override { return harm_; }
  Result<> act() override {
    ++acts;
    if (refuses_to_act) return fail(Errc::failed, "systemd says no");
    names_.clear();
    for (const char* file : {kMain, kDropIn}) {
      std::istringstream words(host_.read_file(file).value_or(""));
      for (std::string word; words >> word;) names_.push_back(word);
    }
    runs_ = !has("broken");
    answers_ = 0;
    if (forgets) std::erase(names_, "ours");
    std::erase(names_, loses);
    return {};
  }

  bool there = true;
  bool slow = false;  // until it is restarted
  bool reports_handlers = true;
  bool pods_known = true;
  bool forgets = false;
  bool refuses_to_act = false;
  std::string loses;
  int acts = -1;  // the first is its own start
  std::vector<RunningPod> pods_;
  std::optional<std::string> harm_;

 private:
  bool has(const char* word) const { return std::ranges::find(names_, word) != names_.end(); }

  const HostFs& host_;
  bool runs_ = false;
  int answers_ = 0;  // since its start
  std::vector<std::string> names_;
};

TEST(RuntimeStateTest, KnowsARuntimeAsFarAsItReports) {
  const RuntimeHandler ours = {
      .name = "ours", .shim = "/shim", .configuration = "/configuration", .snapshotter = "nydus"};
  const KnownRuntime same = {.name = "ours",
                             .type = "io.containerd.ours.v2",
                             .shim = "/shim",
                             .configuration = "/configuration",
                             .snapshotter = "nydus",
                             .pod_annotations = ours.pod_annotations,
                             .container_annotations = ours.container_annotations};
  const auto knows = [&](const KnownRuntime& known) {
    return RuntimeState{.name = "fake", .version = "1", .handlers = {}, .runtimes = {{known}}}.knows(ours);
  };
  EXPECT_TRUE(knows(same));
  struct Row {
    const char* what;
    std::function<void(KnownRuntime&)> other;
    bool known;
  };
  for (const Row& row : {
           Row{"name", [](auto& known) { known.name = "theirs"; }, false},
           Row{"type", [](auto& known) { known.type = "io.containerd.kata.v2"; }, false},
           Row{"shim", [](auto& known) { known.shim = "/other"; }, false},
           Row{"configuration", [](auto& known) { known.configuration = "/other"; }, false},
           Row{"snapshotter", [](auto& known) { known.snapshotter = "overlayfs"; }, false},
           Row{"no snapshotter", [](auto& known) { known.snapshotter = ""; }, false},
           Row{"pod annotations", [](auto& known) { known.pod_annotations->pop_back(); }, false},
           Row{"no pod annotations", [](auto& known) { known.pod_annotations->clear(); }, false},
           Row{"container annotations", [](auto& known) { known.container_annotations->clear(); }, false},
           Row{"a runtime that says none of them",
               [](auto& known) {
                 known.snapshotter.reset();
                 known.pod_annotations.reset();
                 known.container_annotations.reset();
               },
               true},
       }) {
    KnownRuntime known = same;
    row.other(known);
    EXPECT_EQ(knows(known), row.known) << row.what;
  }
}

TEST(RuntimeStateTest, KnowsARuntimeOfContainerd16ByThePathOfItsShimAlone) {
  const RuntimeHandler ours = {.name = "ours", .shim = "/shim", .configuration = "/configuration"};
  KnownRuntime known = {.name = "ours", .type = "/shim", .shim = "/shim", .configuration = "/configuration"};
  const auto knows = [&](const char* version) {
    return RuntimeState{.name = "containerd", .version = version, .handlers = {}, .runtimes = {{known}}}
        .knows(ours);
  };
  EXPECT_TRUE(knows("1.6.20~ds1"));
  EXPECT_TRUE(knows("1.7.24")) << "it starts shims by it, too";
  EXPECT_TRUE(knows("1.6.20.m")) << "which release that is is not known";
  known.type = "io.containerd.ours.v2";
  EXPECT_FALSE(knows("v1.6.39")) << "no pod could be started with it: its shim is looked for by that name";
  EXPECT_TRUE(knows("1.7.24"));
}

class RuntimeChangeTest : public testing::Test {
 protected:
  RuntimeChangeTest() {
    scratch.file(kMain, "runc\n");
    scratch.file("proc/1/cmdline", "init");
  }

  ChangeContext context() {
    return {
        .host = &host, .runtime = &runtime, .control = &runtime, .patience = std::chrono::milliseconds(0)};
  }
  /// Ours into a drop-in, and a word into the main file.
  RuntimeChange installation(const std::string& word = "imports") const {
    return {.files = {{.path = std::string("/") + kDropIn, .before = {}, .after = "ours\n"},
                      {.path = std::string("/") + kMain, .before = "runc\n", .after = "runc " + word + "\n"}},
            .handlers = ours,
            .leaving = {}};
  }
  static RuntimeChange removal() {
    return {.files = {{.path = std::string("/") + kDropIn, .before = "ours\n", .after = {}}},
            .handlers = {},
            .leaving = {"ours"}};
  }
  std::string main() const { return host.read_file(kMain).value_or("there is none"); }
  std::string drop_in() const { return host.read_file(kDropIn).value_or("there is none"); }
  static std::string error_of(const Result<RuntimeOutcome>& outcome) {
    return outcome ? "it went well" : outcome.error().message;
  }

  test::ScratchDirectory scratch;
  test::FaultyHost host{scratch.path()};
  FakeRuntime runtime{host};
  std::vector<RuntimeHandler> ours = {{.name = "ours", .shim = "/shim", .configuration = "/configuration"}};
};

TEST_F(RuntimeChangeTest, IsWrittenReadAndVerifiedAndUnchangedTheSecondTime) {
  const auto first = test::must(apply_change(context(), installation()));
  EXPECT_TRUE(first.written && first.acted);
  EXPECT_EQ(first.unverified, std::nullopt);
  EXPECT_EQ(drop_in(), "ours\n");
  EXPECT_FALSE(host.exists(kRuntimeRecord));
  const int writes = host.writes;
  RuntimeChange again = installation();
  again.files.clear();
  const auto second = test::must(apply_change(context(), again));
  EXPECT_FALSE(second.written || second.acted);
  EXPECT_EQ(host.writes, writes);
  EXPECT_EQ(runtime.acts, 1);
}

TEST_F(RuntimeChangeTest, ThatTheRuntimeDoesNotStartWithIsPutBack) {
  const auto outcome = apply_change(context(), installation("broken"));
  EXPECT_THAT(error_of(outcome), HasSubstr("the files from before are back, and it runs with them"));
  EXPECT_EQ(main(), "runc\n");
  EXPECT_EQ(drop_in(), "there is none");
  EXPECT_EQ(runtime.acts, 2);
  EXPECT_TRUE(runtime.state().has_value());
  EXPECT_FALSE(host.exists(kRuntimeRecord));
}

// One whose server cannot listen answers, and ends a moment later.
TEST_F(RuntimeChangeTest, ThatTheRuntimeEndsWithAfterAnAnswerIsPutBack) {
  auto patient = context();
  patient.patience = std::chrono::minutes(10);
  patient.steady = std::chrono::milliseconds(1);
  EXPECT_THAT(error_of(apply_change(patient, installation("ends"))),
              AllOf(HasSubstr("it answered, and ended a moment later: nobody listens any more"),
                    HasSubstr("the files from before are back, and it runs with them")));
  EXPECT_EQ(main(), "runc\n");
}

TEST_F(RuntimeChangeTest, DoesNotWaitForARuntimeThatSaysThatItHasNoCri) {
  auto patient = context();
  patient.patience = std::chrono::minutes(10);
  patient.steady = std::chrono::milliseconds(1);
  scratch.file(kMain, "runc denies\n");  // by somebody else, so that it is no better with the earlier files
  RuntimeChange change = installation("denies more");
  change.files[1].before = "runc denies\n";
  EXPECT_THAT(error_of(apply_change(patient, change)),
              AllOf(testing::StartsWith("it runs without CRI: no snapshotter"),
                    HasSubstr("but it does not run: it runs without CRI: no snapshotter")));
  EXPECT_EQ(main(), "runc denies\n");
  EXPECT_EQ(runtime.acts, 2);
}

TEST_F(RuntimeChangeTest, IsCheckedBeforeTheNextStartWhoeverMakesIt) {
  std::vector<bool> restarts;
  auto checked = context();
  checked.restart_check = [&](bool restart) -> Result<> {
    restarts.push_back(restart);
    return {};
  };
  test::must(may_apply_change(checked, installation()));
  checked.control = nullptr;
  test::must(may_apply_change(checked, installation()));
  runtime.there = false;
  checked.control = &runtime;
  test::must(may_apply_change(checked, installation()));
  test::must(write_runtime_record(host, {}));  // a killed run may be why it is down
  test::must(may_apply_change(checked, installation()));
  EXPECT_THAT(restarts, ElementsAre(true, false, false));
}

TEST_F(RuntimeChangeTest, ThatTheRuntimeDoesNotTakeInIsPutBack) {
  runtime.forgets = true;
  EXPECT_THAT(error_of(apply_change(context(), installation())), HasSubstr("does not have the runtimes"));
  EXPECT_EQ(main(), "runc\n");
}

TEST_F(RuntimeChangeTest, ThatNobodyMayRestartForIsPutBackAndItsRecordStays) {
  runtime.refuses_to_act = true;
  EXPECT_THAT(error_of(apply_change(context(), installation())),
              AllOf(HasSubstr("systemd says no"), HasSubstr("it does not run: systemd says no")));
  EXPECT_EQ(main(), "runc\n");
}

TEST_F(RuntimeChangeTest, ThatItsOwnProgramReadsOtherwiseIsPutBackBeforeAnyRestart) {
  auto doubted = context();
  doubted.contradiction = [] { return std::optional<std::string>("sandbox_image has another value"); };
  EXPECT_THAT(error_of(apply_change(doubted, installation())),
              AllOf(HasSubstr("sandbox_image"), HasSubstr("what was written is put back")));
  EXPECT_EQ(main(), "runc\n");
  EXPECT_EQ(runtime.acts, 0);
}

TEST_F(RuntimeChangeTest, IsRefusedWhilePodsRunWithWhatWouldLeave) {
  test::must(apply_change(context(), installation()));
  runtime.pods_ = {{.name_space = "a", .name = "web", .handler = "ours", .sandbox = "1"},
                   {.name_space = "a", .name = "other", .handler = "", .sandbox = "2"}};
  const int writes = host.writes;
  const auto outcome = apply_change(context(), removal());
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, make_error_code(Errc::refused));
  EXPECT_THAT(outcome.error().message, AllOf(HasSubstr("a/web"), testing::Not(HasSubstr("a/other"))));
  EXPECT_EQ(host.writes, writes);
  EXPECT_EQ(runtime.acts, 1);
  runtime.pods_known = false;
  EXPECT_THAT(error_of(apply_change(context(), removal())), HasSubstr("not known"));
  EXPECT_EQ(drop_in(), "ours\n");
}

TEST_F(RuntimeChangeTest, IsRefusedWhereARestartEndsThePodsThatRun) {
  runtime.harm_ = "its unit kills all of its processes";
  runtime.pods_ = {{.name_space = "a", .name = "web", .handler = "", .sandbox = "1"}};
  EXPECT_THAT(error_of(apply_change(context(), installation())),
              AllOf(HasSubstr("kills all of its processes")));
  EXPECT_EQ(main(), "runc\n");
  runtime.pods_.clear();
  EXPECT_TRUE(test::must(apply_change(context(), installation())).acted) << "no pod is there to be hurt";
}

TEST_F(RuntimeChangeTest, IsReadLaterWithoutARestartAndVerifiedThen) {
  auto alone = context();
  alone.control = nullptr;
  const auto outcome = test::must(apply_change(alone, installation()));
  EXPECT_TRUE(outcome.written);
  EXPECT_THAT(outcome.unverified.value_or(""), HasSubstr("next start"));
  RuntimeChange again = installation();
  again.files.clear();
  const auto later = test::must(apply_change(context(), again));
  EXPECT_TRUE(later.acted) << "it runs with what it has read before";
  EXPECT_FALSE(later.written);
  EXPECT_EQ(later.unverified, std::nullopt);
}

// Who wrote it is long gone when the runtime is made to read it.
TEST_F(RuntimeChangeTest, ThatWasLeftToBeReadIsPutBackWhereTheRuntimeDoesNotTakeIt) {
  auto alone = context();
  alone.control = nullptr;
  test::must(apply_change(alone, installation("broken")));
  EXPECT_FALSE(host.exists(kRuntimeRecord)) << "nobody is at work";
  RuntimeChange again = installation();
  again.files.clear();
  EXPECT_THAT(error_of(apply_change(context(), again)),
              HasSubstr("the files from before are back, and it runs with them"));
  EXPECT_EQ(main(), "runc\n");
  EXPECT_EQ(drop_in(), "there is none");
  EXPECT_FALSE(host.exists(kUnreadRecord));
}

TEST_F(RuntimeChangeTest, ThatWasLeftToBeReadIsForgottenOnceItIsRead) {
  auto alone = context();
  alone.control = nullptr;
  test::must(apply_change(alone, installation()));
  ASSERT_TRUE(host.exists(kUnreadRecord));
  test::must(runtime.act());  // by somebody else
  RuntimeChange again = installation();
  again.files.clear();
  test::must(apply_change(context(), again));
  EXPECT_FALSE(host.exists(kUnreadRecord));
  test::must(apply_change(alone, removal()));
  ASSERT_TRUE(host.exists(kUnreadRecord));
  RuntimeChange back = installation();
  back.files.pop_back();
  test::must(apply_change(alone, back));
  EXPECT_FALSE(host.exists(kUnreadRecord)) << "it is as it has read it";
}

TEST_F(RuntimeChangeTest, LeavesWhatTheRuntimeHasReadMeanwhile) {
  auto alone = context();
  alone.control = nullptr;
  test::must(apply_change(alone, installation()));
  test::must(runtime.act());  // by somebody else, and it serves
  RuntimeChange second;
  second.files = {{.path = std::string("/") + kMain, .before = "runc imports\n", .after = "runc broken\n"}};
  second.handlers = ours;
  EXPECT_THAT(error_of(apply_change(context(), second)), HasSubstr("the files from before are back"));
  EXPECT_EQ(main(), "runc imports\n");
  EXPECT_EQ(drop_in(), "ours\n");
}

TEST_F(RuntimeChangeTest, ThatFailsBeforeAnyRestartLeavesWhatWasLeftBefore) {
  auto alone = context();
  alone.control = nullptr;
  test::must(apply_change(alone, installation()));
  alone.contradiction = [] { return std::optional<std::string>("sandbox_image has another value"); };
  RuntimeChange second;
  second.files = {{.path = std::string("/") + kMain, .before = "runc imports\n", .after = "runc other\n"}};
  second.handlers = ours;
  EXPECT_THAT(error_of(apply_change(alone, second)), HasSubstr("what was written is put back"));
  EXPECT_EQ(main(), "runc imports\n");
  EXPECT_EQ(drop_in(), "ours\n");
  EXPECT_TRUE(host.exists(kUnreadRecord));
  EXPECT_FALSE(host.exists(kRuntimeRecord));
}

TEST_F(RuntimeChangeTest, KeepsAnEditOfWhatWasLeftToBeReadAlsoBehindARunThatDied) {
  auto alone = context();
  alone.control = nullptr;
  test::must(apply_change(alone, installation()));
  scratch.file(kMain, "runc edited\n");
  const FileChange killed{
      .path = std::string("/") + kMain, .before = "runc edited\n", .after = "runc broken\n"};
  test::must(write_runtime_record(host, {killed}));
  test::must(make(host, killed));
  RuntimeChange again;
  again.handlers = ours;
  EXPECT_THAT(error_of(apply_change(context(), again)), HasSubstr("the files from before are back"));
  EXPECT_EQ(main(), "runc edited\n");
}

// Else the next one would take it for one that is down for another reason.
TEST_F(RuntimeChangeTest, ThatIsKilledWhileWhatWasLeftIsReadIsTakenUp) {
  auto alone = context();
  alone.control = nullptr;
  test::must(apply_change(alone, installation("broken")));
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto dies = context();
    dies.log = [](const std::string& what) {
      if (what.starts_with("put ")) ::_exit(EXIT_SUCCESS);
    };
    RuntimeChange again = installation();
    again.files.clear();
    static_cast<void>(apply_change(dies, again));
    ::_exit(EXIT_FAILURE);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_EQ(WEXITSTATUS(status), EXIT_SUCCESS);
  EXPECT_TRUE(host.exists(kRuntimeRecord));
  test::must(runtime.act());  // it is down by now
  RuntimeChange again = installation();
  again.files.clear();
  EXPECT_FALSE(apply_change(context(), again).has_value());
  EXPECT_EQ(main(), "runc\n");
  EXPECT_TRUE(runtime.state().has_value());
}

TEST_F(RuntimeChangeTest, IsPutBackWhereTheRuntimeHasLostSomebodyElses) {
  RuntimeChange change = installation();
  change.staying = std::vector<std::string>{"runc", "imports", "ours"};
  test::must(runtime.act());  // it has read the main file
  runtime.loses = "runc";
  EXPECT_THAT(error_of(apply_change(context(), change)), HasSubstr("has lost runc, which is not ours"));
  EXPECT_EQ(main(), "runc\n");
  change.staying =
      std::vector<std::string>{"imports", "ours"};  // as its files say: somebody has taken it out
  EXPECT_EQ(error_of(apply_change(context(), change)), "it went well");
}

TEST_F(RuntimeChangeTest, ThatFailsWithoutAWriteSaysSo) {
  runtime.refuses_to_act = true;
  scratch.file(kDropIn, "ours\n");
  RuntimeChange change = installation();
  change.files.clear();
  EXPECT_THAT(error_of(apply_change(context(), change)), HasSubstr("none of its files is other than before"));
}

TEST_F(RuntimeChangeTest, OfARuntimeThatDoesNotRunIsWrittenOnly) {
  runtime.there = false;
  const auto outcome = test::must(apply_change(context(), installation()));
  EXPECT_TRUE(outcome.written);
  EXPECT_FALSE(outcome.acted);
  EXPECT_THAT(outcome.unverified.value_or(""), HasSubstr("does not run"));
  EXPECT_FALSE(host.exists(kRuntimeRecord));
}

TEST_F(RuntimeChangeTest, OfARuntimeThatReportsNothingIsTriedByItsAnswering) {
  runtime.reports_handlers = false;
  EXPECT_THAT(test::must(apply_change(context(), installation())).unverified.value_or(""),
              HasSubstr("does not say"));
  EXPECT_THAT(
      error_of(apply_change(
          context(),
          {.files = {{.path = std::string("/") + kMain, .before = "runc imports\n", .after = "broken\n"}},
           .handlers = ours,
           .leaving = {}})),
      HasSubstr("are back"));
}

TEST_F(RuntimeChangeTest, OfAFileThatSomebodyElseHasChangedIsRefused) {
  scratch.file(kMain, "runc theirs\n");
  const auto outcome = apply_change(context(), installation());
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, make_error_code(Errc::refused));
  EXPECT_EQ(main(), "runc theirs\n");
  EXPECT_EQ(drop_in(), "there is none");
  EXPECT_EQ(runtime.acts, 0);
}

TEST_F(RuntimeChangeTest, OfARuntimeThatIsSlowToAnswerIsNotMade) {
  runtime.slow = true;
  const auto outcome = apply_change(context(), installation());
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, make_error_code(Errc::unreachable));
  EXPECT_EQ(main(), "runc\n");
  EXPECT_EQ(host.writes, 0);
}

TEST_F(RuntimeChangeTest, ThatWasInterruptedIsNotTakenUpByARestartThatMayEndPods) {
  test::must(write_runtime_record(host, installation("broken").files));
  scratch.file(kMain, "runc broken\n");
  runtime.slow = true;
  runtime.harm_ = "its unit kills all of its processes";
  const auto outcome = apply_change(context(), {.files = {}, .handlers = ours, .leaving = {}});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, make_error_code(Errc::refused));
  EXPECT_EQ(runtime.acts, 0);
  runtime.harm_.reset();
  EXPECT_THAT(error_of(apply_change(context(), {.files = {}, .handlers = ours, .leaving = {}})),
              HasSubstr("are back"));
  EXPECT_EQ(main(), "runc\n");
  EXPECT_EQ(runtime.acts, 2);
}

TEST_F(RuntimeChangeTest, OfALinkIsRefused) {
  scratch.file("srv/main", "runc\n");
  scratch.link(kMain, "/srv/main");
  const auto outcome = apply_change(context(), installation());
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, make_error_code(Errc::refused));
  EXPECT_THAT(outcome.error().message, HasSubstr("is a link to /srv/main"));
  EXPECT_THAT(outcome.error().hint, HasSubstr("if it is the container runtime's main file"));
  EXPECT_THAT(outcome.error().hint, HasSubstr("else put a copy of the target in place of the link"));
  EXPECT_EQ(host.link_target(kMain).value_or(""), "/srv/main");
  EXPECT_EQ(drop_in(), "there is none");
}

// Between two runs that died somebody edited the file: that is what comes back, not what was there first.
TEST_F(RuntimeChangeTest, BringsBackAnEditThatWasMadeBetweenTwoRunsThatDied) {
  const FileChange first{.path = std::string("/") + kMain, .before = "runc\n", .after = "runc one\n"};
  const FileChange second{.path = first.path, .before = "runc edited\n", .after = "runc broken\n"};
  test::must(write_runtime_record(host, {first}));
  scratch.file(kMain, "runc edited\n");
  EXPECT_THAT(test::must(read_runtime_record(host)), IsEmpty());
  EXPECT_THAT(error_of(apply_change(context(), {.files = {second}, .handlers = {}, .leaving = {}})),
              HasSubstr("are back"));
  EXPECT_EQ(main(), "runc edited\n");
}

TEST_F(RuntimeChangeTest, FailingAtAnyWriteLeavesWhatWasThere) {
  for (int test::FaultyHost::*const fails : {&test::FaultyHost::fails_at, &test::FaultyHost::fails_behind})
    for (int at = 0;; ++at) {
      SCOPED_TRACE(at);
      const test::ScratchDirectory folder;
      folder.file(kMain, "runc\n");
      test::FaultyHost here(folder.path());
      FakeRuntime fake(here);
      here.*fails = at;
      const auto outcome =
          apply_change({.host = &here, .runtime = &fake, .control = &fake, .patience = {}}, installation());
      if (here.writes <= at) {
        EXPECT_TRUE(outcome.has_value());
        EXPECT_GE(at, 4) << "the record, two files, the record's end";
        break;
      }
      ASSERT_FALSE(outcome.has_value());
      EXPECT_TRUE(fake.state().has_value());
      const bool old = here.read_file(kMain).value_or("") == "runc\n" && !here.exists(kDropIn);
      const bool proven = here.read_file(kMain).value_or("") == "runc imports\n" && fake.state()->has("ours");
      EXPECT_TRUE(old || proven);
      here.*fails = -1;
      RuntimeChange again = installation();
      if (proven) again.files.clear();
      EXPECT_TRUE(apply_change({.host = &here, .runtime = &fake, .control = &fake, .patience = {}}, again)
                      .has_value());
      EXPECT_FALSE(here.exists(kRuntimeRecord));
    }
}

/// The files, as they shall be: a run that comes later plans from what it finds.
RuntimeChange rest_of(const RuntimeChange& change, const HostFs& host) {
  RuntimeChange out = change;
  std::erase_if(out.files, [&](FileChange& file) {
    file.before = test::must(content_of(host, file.path));
    return file.before == file.after;
  });
  return out;
}

// A process that dies at each write, before it and behind it: each file is the old one or the new one. The
// next run proves it, or, where the runtime does not start with it, brings back what the first one found.
TEST_F(RuntimeChangeTest, DyingAtAnyWriteIsTakenUpByTheNextRun) {
  for (const std::string word : {"imports", "broken"}) {
    int deaths = 0;
    for (int at = 0; at < 16; ++at) {
      for (const bool before : {true, false}) {
        SCOPED_TRACE(word + (before ? " before " : " behind ") + std::to_string(at));
        const test::ScratchDirectory folder;
        folder.file(kMain, "runc\n");
        test::FaultyHost here(folder.path());
        const pid_t pid = ::fork();
        if (pid == 0) {
          (before ? here.dies_before : here.dies_after) = at;
          FakeRuntime fake(here);
          static_cast<void>(apply_change({.host = &here, .runtime = &fake, .control = &fake, .patience = {}},
                                         installation(word)));
          ::_exit(EXIT_FAILURE);  // it went through
        }
        int status = 0;
        ASSERT_EQ(::waitpid(pid, &status, 0), pid);
        deaths += WEXITSTATUS(status) == EXIT_SUCCESS ? 1 : 0;
        EXPECT_THAT(here.read_file(kMain).value_or(""), testing::AnyOf("runc\n", "runc " + word + "\n"));
        FakeRuntime fake(here);
        const auto next = apply_change({.host = &here, .runtime = &fake, .control = &fake, .patience = {}},
                                       rest_of(installation(word), here));
        if (word == "imports") {
          EXPECT_EQ(error_of(next), "it went well");
          EXPECT_TRUE(fake.state()->has("ours"));
        } else {
          EXPECT_EQ(here.read_file(kMain).value_or(""), "runc\n");
          EXPECT_FALSE(here.exists(kDropIn));
        }
        EXPECT_FALSE(here.exists(kRuntimeRecord));
      }
    }
    EXPECT_GE(deaths, 8);
  }
}

}  // namespace
}  // namespace ferry::kata
