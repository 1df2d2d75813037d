package conntrack

import (
	"sync"
	"unsafe"

	"github.com/cilium/ebpf/btf"

	"loxilb/internal/kernel/datapath/bpf"
)

const cacheLine = uint32(bpf.TcTableLayoutCACHE_LINE)

// Skew is the offset of the first bucket in a map's value that aligns buckets to cache lines. The
// kernel's alignment of the first value of an array differs between versions. If it is unknown,
// each look-up reads one more line. A table is adopted only with the skew that it was made with.
var Skew = sync.OnceValue(func() uint32 {
	kernel, err := bpf.KernelTypes().Kernel()
	if err != nil {
		return 0
	}
	var array *btf.Struct
	if kernel.TypeByName("bpf_array", &array) != nil || len(array.Members) == 0 {
		return 0
	}
	value := array.Members[len(array.Members)-1].Offset.Bytes() // the values come last
	return (cacheLine - value%cacheLine) % cacheLine &^ 7
})

// element is a map's value for a bucket, in words of 8 bytes.
type element [bpf.TcTableElementTABLE_ELEMENT / 8]uint64

// bucketIn returns the bucket in a map's value.
func bucketIn(e *element) *bpf.TcTableBucket {
	return (*bpf.TcTableBucket)(unsafe.Pointer(&e[Skew()/8]))
}
