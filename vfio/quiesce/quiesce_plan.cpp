// SPDX-License-Identifier: Apache-2.0
#include "vfio/quiesce/quiesce_plan.h"

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace ferry::vfio {
namespace {

using Kind = Releasable::Kind;

class Quiesce {
 public:
  Quiesce(const RebindContext& context, StoppedServices& services, std::vector<QuiesceRequest>& requests)
      : context_(context), services_(services), requests_(requests) {}

  using UsersOfModules = std::map<std::string, std::size_t>;

  void stop_all(Kind kind) {
    each(kind, [&](QuiesceRequest& request, const Releasable& user) { stop(request, user); });
  }

  UsersOfModules users_of_modules() {
    UsersOfModules users;
    each(Kind::module, [&](const QuiesceRequest&, const Releasable& module) { ++users[module.name]; });
    return users;
  }

  // A module closes all its devices at once, and the plan needs all of them free. If a request has dropped
  // out since, the module stays loaded.
  void keep_needed_modules(const UsersOfModules& planned) {
    for (auto now = users_of_modules(), before = UsersOfModules(); now != before;
         before = std::exchange(now, users_of_modules())) {
      each(Kind::module, [&](QuiesceRequest& request, const Releasable& module) {
        if (now[module.name] == planned.at(module.name)) return;
        request.refusal = Error{.code = Errc::refused,
                                .message = module.name + " is not unloaded: another GPU that it serves stays",
                                .hint = "see what keeps that one"};
      });
    }
  }

  // Looks for users again, since the daemon's answer proves nothing. The host's service can stop as a whole.
  void stop_service_still_in_use(const Inventory& inventory) {
    std::vector<PciAddress> asked;
    each(Kind::persistence, [&](const QuiesceRequest&, const Releasable& gpu) {
      asked.push_back(PciAddress::parse(gpu.name).value());
    });
    if (asked.empty()) return;
    const auto use = context_.probe->look(use_questions(*context_.host, inventory, asked));
    if (!use) return;  // the look behind the fence refuses then
    for (QuiesceRequest& request : requests_) {
      for (const PciAddress& gpu : request.devices) {
        if (request.dropped_out() || std::ranges::find(asked, gpu) == asked.end()) continue;
        const auto users = use->of(gpu.text());
        const bool closes = std::ranges::any_of(users, &DeviceUser::closes_on_request);
        if (!closes && std::ranges::find(users, kPersistenced, &DeviceUser::service) != users.end())
          stop(request, {.kind = Kind::service, .name = kPersistenced});
        if (!closes) continue;
        // The result of the first try.
        const Releasable persistence{.kind = Kind::persistence, .name = gpu.text()};
        const auto result = services_.stop(persistence);
        if (result) continue;
        const Error& why = result.error();
        request.refusal =
            Error{.code = Errc::refused,
                  .message = persistence.quiesce_text() + ": " + why.message,
                  .hint = why.hint.empty() ? "see the log of the driver's pod: the GPU stays with the host"
                                           : why.hint};
      }
    }
  }

 private:
  template <typename F>
  void each(Kind kind, const F& f) {
    for (auto& request : requests_) {
      for (const Releasable& user : request.users)
        if (user.kind == kind && !request.dropped_out()) f(request, user);
    }
  }

  void stop(QuiesceRequest& request, const Releasable& user) {
    auto stopped = services_.stop(user);
    if (stopped) {
      request.released.insert(user);
      return;
    }
    // A GPU that the daemon does not close stays in use, which the next step deals with.
    if (user.kind == Kind::persistence && stopped.error().code != Errc::stuck) return;
    request.failure = std::move(stopped).error().during(user.quiesce_text());
  }

  const RebindContext& context_;
  StoppedServices& services_;
  std::vector<QuiesceRequest>& requests_;
};

}  // namespace

void QuiescePlan::add(const Releasable& who, const DeviceUser& user, const PciAddress& function) {
  users[who].push_back(function);
  if (who.kind == Kind::module) also[who.name].insert(user.also.begin(), user.also.end());
}

std::set<std::string> possible_release(std::set<std::string> list, const ServiceManager* service_manager) {
  // Unloading a module needs no service manager.
  if (service_manager == nullptr)
    std::erase_if(list, [](const std::string& name) { return name != kConsoleModule; });
  return list;
}

// The service is stopped if no GPU remains with nvidia-persistenced. That asks no daemon, also
// closes the daemon's other nodes, and no GPU misses the daemon meanwhile.
std::set<Releasable> users_to_quiesce(const QuiescePlan& plan, bool by_gpu,
                                      const std::function<bool(const PciAddress&)>& is_gpu,
                                      const std::function<bool(const PciAddress&)>& serves_others) {
  std::set<Releasable> out;
  for (const auto& [user, functions] : plan.users) {
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

std::vector<Error> serving_others(const QuiescePlan& plan, const std::set<std::string>& freed,
                                  const std::string& stays) {
  std::vector<Error> out;
  for (const auto& [module, devices] : plan.also) {
    for (const std::string& device : devices) {
      if (freed.contains(device)) continue;
      out.push_back(
          {.code = Errc::refused,
           .message = fmt::format("{} is not unloaded: it also serves {}, {}", module, device, stays),
           .hint = fmt::format("take all its GPUs together, or load it with modeset=0 (options {} in "
                               "/etc/modprobe.d)",
                               module)});
    }
  }
  return out;
}

Error still_in_use(const Releasable& user, const std::string& what) {
  const std::string who = user.kind == Kind::persistence ? kPersistenced : user.name;
  return {.code = Errc::refused,
          .message = fmt::format("{} still uses {}, although Ferry quiesced it", who, what),
          .hint = "find out what starts it meanwhile, or stop it first"};
}

void quiesce_around(std::vector<Step>& steps, const std::set<Releasable>& users) {
  std::vector<Step> out;
  out.reserve(steps.size() + 2 * users.size());
  for (const Releasable& user : users) {
    out.push_back({.kind = Step::Kind::quiesce,
                   .why = "it holds a device and is on the release list; once for all that need it",
                   .user = user});
  }
  out.insert(out.end(), steps.begin(), steps.end());
  for (const Releasable& user : users | std::views::reverse) {
    const bool of_one = user.kind == Kind::persistence;
    out.push_back(
        {.kind = Step::Kind::resume,
         .why = of_one ? "once the GPU is back on the driver it had, by this command or a later one"
                       : "it serves the host's other devices; once all is done, whatever becomes of it",
         .user = user});
  }
  steps = std::move(out);
}

std::set<Releasable> users_quiesced_by(const std::vector<Step>& steps) {
  std::set<Releasable> out;
  for (const Step& step : steps)
    if (step.kind == Step::Kind::quiesce) out.insert(step.user);
  return out;
}

void quiesce(const RebindContext& context, const Inventory& inventory, StoppedServices& services,
             std::vector<QuiesceRequest>& requests) {
  Quiesce steps(context, services, requests);
  const auto planned = steps.users_of_modules();
  steps.stop_all(Kind::persistence);
  steps.stop_service_still_in_use(inventory);
  steps.stop_all(Kind::service);
  steps.keep_needed_modules(planned);
  steps.stop_all(Kind::module);
}

}  // namespace ferry::vfio
