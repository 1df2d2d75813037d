package metrics

import (
	"sync"

	"loxilb/internal/control/status"
	"loxilb/internal/host/machine"
)

// Build describes the daemon in loxilb_build_info.
type Build struct {
	Version string
	Kernel  string // release of the running kernel
	Hook    string // tcx or clsact
}

func daemonFamilies() []family {
	return []family{
		{Metric{"loxilb_build_info", Gauge, []string{"version", "kernel", "hook"}, "Version of the daemon, kernel it runs on and hook its programs are attached to.", Always},
			func(v *view, p *page) { p.add(1, v.Build.Version, v.Build.Kernel, v.Build.Hook) }},
		{Metric{"loxilb_up", Gauge, nil, "1 while packets are balanced correctly (as in /readyz), 0 during the start and after the loss of the data path.", Always},
			func(v *view, p *page) { p.add(boolValue(v.Ready == nil || v.Ready())) }},
		{Metric{"loxilb_config_revision", Gauge, nil, "Revision of the desired state.", Always},
			func(v *view, p *page) { p.add(float64(v.snap.Revision())) }},
		{Metric{"loxilb_config_last_apply_success", Gauge, nil, "1 when no object is in state failed.", Always}, addSuccess},
		{Metric{"loxilb_config_last_apply_timestamp_seconds", Gauge, nil, "Unix time at which the data path last applied an object.", Always},
			func(v *view, p *page) {
				if at := v.src.LastApplied(); !at.IsZero() {
					p.add(float64(at.UnixMilli()) / 1000)
				}
			}},
		{Metric{"loxilb_objects", Gauge, []string{"kind", "state"}, "Objects by kind and state in the data path: pending, applied, failed.", Always}, addObjects},
		{Metric{"loxilb_services", Gauge, nil, "Services.", Always}, func(v *view, p *page) { p.add(float64(len(v.rows))) }},
		{Metric{"loxilb_endpoints", Gauge, nil, "Endpoints of all services together.", Always},
			func(v *view, p *page) { p.add(float64(v.store.Services.Endpoints(v.snap))) }},
		{Metric{"loxilb_program_instructions", Gauge, []string{"program"}, "Instructions of the program that the kernel's verifier has processed.", Always},
			addPrograms(func(one *Program) float64 { return float64(one.Instructions) })},
		{Metric{"loxilb_program_runs_total", Counter, []string{"program"}, "Runs of the program since it was loaded, while kernel.bpf_stats_enabled was 1.", Always},
			addPrograms(func(one *Program) float64 { return float64(one.Runs) })},
		{Metric{"loxilb_program_run_seconds_total", Counter, []string{"program"}, "CPU time of the program since it was loaded, while kernel.bpf_stats_enabled was 1.", Always},
			addPrograms(func(one *Program) float64 { return one.Time.Seconds() })},
	}
}

func addSuccess(v *view, p *page) {
	for _, states := range v.src.Counts() {
		if states[status.Failed] > 0 {
			p.add(0)
			return
		}
	}
	p.add(1)
}

func addObjects(v *view, p *page) {
	counts := v.src.Counts()
	for _, kind := range sorted(counts) {
		for _, state := range []status.State{status.Pending, status.Applied, status.Failed} {
			p.add(float64(counts[kind][state]), kind, string(state))
		}
	}
}

func addPrograms(value func(*Program) float64) func(*view, *page) {
	return func(v *view, p *page) {
		for _, one := range v.src.Programs() {
			p.add(value(&one), one.Name)
		}
	}
}

// cpu is how busy the CPUs were between two scrapes.
type cpu struct {
	mu     sync.Mutex
	before machine.CPUTime // at the previous scrape; at first, at boot
}

// machineFamilies show the machine's load, by the existing loxilb's names. Unreadable values are
// left out: 0 would be wrong.
func machineFamilies() []family {
	return []family{
		{Metric{"loxilb_system_cpu_utilization_percent", Gauge, nil, "Time that the machine's CPUs were not idle, since the previous scrape.", Always}, func(v *view, p *page) {
			now, err := machine.CPUTimes()
			if err != nil {
				return
			}
			v.cpu.mu.Lock()
			busy, ok := now.BusySince(v.cpu.before)
			v.cpu.before = now
			v.cpu.mu.Unlock()
			if ok {
				p.add(busy)
			}
		}},
		{Metric{"loxilb_system_memory_utilization_percent", Gauge, nil, "Memory of the machine that is not available to programs.", Always}, func(_ *view, p *page) {
			if used, err := machine.MemoryUsed(); err == nil {
				p.add(used)
			}
		}},
		{Metric{"loxilb_system_disk_utilization_percent", Gauge, nil, "Part of the root file system that is not available to users.", Always}, func(_ *view, p *page) {
			if used, err := machine.DiskUsed("/"); err == nil {
				p.add(used)
			}
		}},
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
