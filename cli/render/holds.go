package render

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// HoldName is a hold of another scheduler as people know it: NAMESPACE/POD.
func HoldName(hold *apiv1.ForeignHold) string {
	switch {
	case hold.GetOwner() == "":
		return hold.GetId()
	case hold.GetSpace() == "":
		return hold.GetOwner()
	}
	return hold.GetSpace() + "/" + hold.GetOwner()
}

// HoldTRES is what a hold has, as scontrol writes TRES: cpu=0.5,mem=512M,gres/gpu=1.
func HoldTRES(hold *apiv1.ForeignHold) string {
	parts := []string{"cpu=" + milliCPU(hold.GetMilliCpu())}
	if hold.GetMem() > 0 {
		parts = append(parts, "mem="+tool.Itoa(hold.GetMem())+"M")
	}
	if n := len(hold.GetGpus()); n > 0 {
		parts = append(parts, "gres/gpu="+tool.Itoa(n))
	}
	return strings.Join(parts, ",")
}

// HoldGPUs are the devices of a hold by index and UUID.
func HoldGPUs(hold *apiv1.ForeignHold) string {
	var out []string
	for _, gpu := range hold.GetGpus() {
		out = append(out, tool.Itoa(gpu.GetIndex())+":"+gpu.GetUuid())
	}
	return strings.Join(out, ",")
}

// milliCPU writes thousandths of CPUs: 3, 2.735.
func milliCPU(n int64) string {
	whole := tool.Itoa(n / 1000)
	if n%1000 == 0 {
		return whole
	}
	fraction := "000" + tool.Itoa(n%1000)
	return whole + "." + strings.TrimRight(fraction[len(fraction)-3:], "0")
}

// holdText is what a hold has, in a few words.
func holdText(milli, memory, gpus int64) string {
	parts := []string{milliCPU(milli) + " CPUs"}
	if gpus > 0 {
		parts = append(parts, formatQuantity("gres/gpu", gpus))
	}
	if memory > 0 {
		parts = append(parts, formatQuantity("mem", memory))
	}
	return strings.Join(parts, ", ")
}
