// SPDX-License-Identifier: Apache-2.0
#include "vfio/quiesce/letting_go.h"

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <utility>

#include <fmt/format.h>

namespace ferry::vfio {
namespace {

using Kind = Releasable::Kind;

class LettingGo {
 public:
  LettingGo(const ReleaseContext& context, StoppedServices& services, std::vector<Asker>& askers)
      : context_(context), services_(services), askers_(askers) {}

  void run(const Inventory& inventory) {
    const auto planned = users_of_modules();
    stop_all(Kind::persistence);
    stop_what_holds_on(inventory);
    stop_all(Kind::service);
    keep_modules_that_are_needed(planned);
    stop_all(Kind::module);
  }

 private:
  using UsersOfModules = std::map<std::string, std::size_t>;

  template <typename F>
  void each(Kind kind, const F& f) {
    for (Asker& asker : askers_) {
      for (const Releasable& user : asker.users) {
        if (user.kind == kind && !asker.out()) f(asker, user);
      }
    }
  }

  void stop(Asker& asker, const Releasable& user) {
    auto stopped = services_.stop(user);
    if (stopped) {
      asker.released.insert(user);
      return;
    }
    // A GPU that the daemon cannot be asked for stays in use; its whole service stops in the next step.
    if (user.kind == Kind::persistence && stopped.error().code != Errc::stuck) return;
    asker.failure = std::move(stopped).error().during(user.letting_go());
  }

  void stop_all(Kind kind) {
    each(kind, [&](Asker& asker, const Releasable& user) { stop(asker, user); });
  }

  UsersOfModules users_of_modules() {
    UsersOfModules users;
    each(Kind::module, [&](const Asker&, const Releasable& module) { ++users[module.name]; });
    return users;
  }

  // A module closes all its devices at once, and the plan needs all of them free. If an asker has dropped out
  // since, the module stays loaded.
  void keep_modules_that_are_needed(const UsersOfModules& planned) {
    for (auto now = users_of_modules(), before = UsersOfModules(); now != before;
         before = std::exchange(now, users_of_modules())) {
      each(Kind::module, [&](Asker& asker, const Releasable& module) {
        if (now[module.name] == planned.at(module.name)) return;
        asker.refusal = Error{.code = Errc::refused,
                              .message = module.name + " is not unloaded: another GPU that it serves stays",
                              .hint = "see what keeps that one"};
      });
    }
  }

  // Looks for users again, since success of the driver's tool proves nothing.
  void stop_what_holds_on(const Inventory& inventory) {
    std::vector<PciAddress> asked;
    each(Kind::persistence,
         [&](const Asker&, const Releasable& gpu) { asked.push_back(PciAddress::parse(gpu.name).value()); });
    if (asked.empty()) return;
    const auto use = context_.probe->look(use_questions(*context_.host, inventory, asked));
    const auto holds_on = [&](const PciAddress& gpu) {
      return std::ranges::find(asked, gpu) != asked.end() &&
             (!use || std::ranges::any_of(use->of(gpu.text()), [](const DeviceUser& user) {
               return user.service == kPersistenced;
             }));
    };
    for (Asker& asker : askers_) {
      if (!asker.out() && std::ranges::any_of(asker.devices, holds_on))
        stop(asker, {.kind = Kind::service, .name = kPersistenced});
    }
  }

  const ReleaseContext& context_;
  StoppedServices& services_;
  std::vector<Asker>& askers_;
};

}  // namespace

void Released::add(const Releasable& who, const DeviceUser& user, const PciAddress& function) {
  users[who].push_back(function);
  if (who.kind == Kind::module) also[who.name].insert(user.also.begin(), user.also.end());
}

std::set<std::string> possible_release(std::set<std::string> list, const Releaser* releaser) {
  // Unloading a module needs no service manager.
  if (releaser == nullptr)
    std::erase_if(list, [](const std::string& name) { return name != kConsoleModule; });
  return list;
}

// The service is stopped if no GPU remains with nvidia-persistenced. That needs no tool of the driver, also
// closes the daemon's other nodes, and no GPU misses the daemon meanwhile.
std::set<Releasable> asked_to_let_go(const Released& released, bool by_gpu,
                                     const std::function<bool(const PciAddress&)>& is_gpu,
                                     const std::function<bool(const PciAddress&)>& serves_others) {
  std::set<Releasable> out;
  for (const auto& [user, functions] : released.users) {
    if (user.name != kPersistenced || !by_gpu || !serves_others(functions.front()) ||
        !std::ranges::all_of(functions, is_gpu)) {
      out.insert(user);
      continue;
    }
    for (const PciAddress& function : functions)
      out.insert({.kind = Kind::persistence, .name = function.text()});
  }
  return out;
}

std::vector<Error> serving_others(const Released& released, const std::set<std::string>& freed,
                                  const std::string& stays) {
  std::vector<Error> out;
  for (const auto& [module, devices] : released.also) {
    for (const std::string& device : devices) {
      if (freed.contains(device)) continue;
      out.push_back(
          {.code = Errc::refused,
           .message = fmt::format("{} is not unloaded: it also serves {}, {}", module, device, stays),
           .hint = fmt::format("take all its GPUs together, or load it with fbdev=0 (options {} in "
                               "/etc/modprobe.d)",
                               module)});
    }
  }
  return out;
}

Error held_on(const Releasable& user, const std::string& what) {
  const std::string who = user.kind == Kind::persistence ? kPersistenced : user.name;
  return {.code = Errc::refused,
          .message = fmt::format("{} holds {} although it was to let go", who, what),
          .hint = "find out what starts it meanwhile, or stop it first"};
}

void release_around(std::vector<Step>& steps, const std::set<Releasable>& users) {
  std::vector<Step> out;
  out.reserve(steps.size() + 2 * users.size());
  for (const Releasable& user : users) {
    out.push_back({.kind = Step::Kind::let_go,
                   .address = {},
                   .value = {},
                   .why = "it holds a device and is on the release list; once for all that need it",
                   .user = user});
  }
  out.insert(out.end(), steps.begin(), steps.end());
  for (const Releasable& user : users | std::views::reverse) {
    const bool of_one = user.kind == Kind::persistence;
    out.push_back(
        {.kind = Step::Kind::take_hold,
         .address = {},
         .value = {},
         .why = of_one ? "once the GPU is back on the driver it had, by this command or a later one"
                       : "it serves the host's other devices; once all is done, whatever becomes of it",
         .user = user});
  }
  steps = std::move(out);
}

std::set<Releasable> releasing(const std::vector<Step>& steps) {
  std::set<Releasable> out;
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::let_go) out.insert(step.user);
  }
  return out;
}

void let_go(const ReleaseContext& context, const Inventory& inventory, StoppedServices& services,
            std::vector<Asker>& askers) {
  LettingGo(context, services, askers).run(inventory);
}

}  // namespace ferry::vfio
