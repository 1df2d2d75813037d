package metrics

import (
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// maxVIPs bounds the VIPs with series without --metrics-detail=endpoint.
const maxVIPs = 1000

// CertificateFile is a file of certificates that is in use.
type CertificateFile struct {
	Use  string // api, probe-ca or probe
	File string
}

// Certificate is the time at which a certificate expires.
type Certificate struct {
	CertificateFile
	End time.Time
}

// ownerFamilies show which node of a cluster has an address, and when certificates expire.
func ownerFamilies() []family {
	return []family{
		{Metric{"loxilb_instance_role", Gauge, []string{"name", "role"}, "1 for the role of this node for an instance that has been given one: MASTER, BACKUP, FAULT, STOP, NOT_DEFINED.", Always}, func(v *view, p *page) {
			for _, key := range sorted(v.instances) {
				p.add(1, key, string(v.instances[key].Role))
			}
		}},
		{Metric{"loxilb_vip_owner", Gauge, []string{"vip"}, "1 if this node answers for the VIP or source address and announces it, 0 if another node does. Without --metrics-detail=endpoint, for the first 1,000.", Always}, addOwners},
		{Metric{"loxilb_certificate_expiry_timestamp_seconds", Gauge, []string{"use", "file"}, "Unix time at which the first certificate of a file expires: of the API (api), authorities (probe-ca) or client certificates (probe) of probes; of the first 100 files.", Always}, func(v *view, p *page) {
			if v.Certificates == nil {
				return
			}
			for _, c := range v.Certificates(v.probed.files) {
				p.add(float64(c.End.Unix()), c.Use, c.File)
			}
		}},
	}
}

func addOwners(v *view, p *page) {
	owned := map[netip.Addr]bool{}
	for s := range v.store.Services.EachShared(v.snap) {
		role := v.instances[s.Instance()].Role
		for _, a := range s.OwnAddresses() {
			owned[a] = owned[a] || role.Owns()
		}
	}
	for r := range v.store.Rules.EachShared(v.snap) {
		if r.Action == policy.RuleSNAT {
			owned[r.ToSource] = owned[r.ToSource] || lb.OwnsSource(r.ToSource, v.instances)
		}
	}
	for _, one := range v.instances {
		if one.VIP.IsValid() {
			owned[one.VIP] = owned[one.VIP] || one.Role.Owns()
		}
	}
	list := make([]netip.Addr, 0, len(owned))
	for a := range owned {
		list = append(list, a)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	if !v.Endpoints {
		list = list[:min(len(list), maxVIPs)]
	}
	for _, a := range list {
		p.add(boolValue(owned[a]), a.String())
	}
}
