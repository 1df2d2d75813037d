package cluster

import (
	"slices"

	"loxilb/internal/cluster/record"
	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// chunksOf encodes copies, packed for peers that support it. Older peers may not support SCTP
// either, so its associations then get their own chunks.
func chunksOf(list []report.ConnectionCopy, packed bool) (parts []chunk) {
	isSCTP := func(c report.ConnectionCopy) bool { return c.Protocol == lb.SCTP }
	if packed {
		return encode(list, transport.FeaturePacked)
	}
	if !slices.ContainsFunc(list, isSCTP) {
		return encode(list, "")
	}
	var others, associations []report.ConnectionCopy
	for _, c := range list {
		if isSCTP(c) {
			associations = append(associations, c)
		} else {
			others = append(others, c)
		}
	}
	return append(encode(others, ""), encode(associations, transport.FeatureSCTP)...)
}

// encode encodes copies for peers with a feature, or for all.
func encode(list []report.ConnectionCopy, needs transport.Feature) (parts []chunk) {
	for len(list) > 0 {
		c := chunk{needs: needs, data: make([]byte, 0, min(len(list)*record.MaxLength, transport.MaxFrame))}
		var frame record.Packer
		for len(list) > 0 && len(c.data) <= transport.MaxFrame-record.MaxPackedLength {
			if needs == transport.FeaturePacked {
				c.data = frame.Append(c.data, &list[0])
			} else {
				c.data = record.Append(c.data, &list[0])
			}
			c.count++
			list = list[1:]
		}
		if cap(c.data) > 2*len(c.data) {
			c.data = slices.Clone(c.data)
		}
		parts = append(parts, c)
	}
	return parts
}
