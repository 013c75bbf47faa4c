package ptx

import "math"

var posInf, nan64 = math.Inf(1), math.NaN()

// philox emits Philox 4x32-10 (Salmon et al. 2011) with counter (quad, site, micro-batch, attempt)
// and key = seed. r holds seed, attempt and micro-batch as i64 values; quad is the element index /
// 4. The high half of the micro-batch is added to quad: it holds the counters used by lower ranks.
func (b *builder) philox(quad Reg, site int64, r [3]Reg) [4]Reg {
	low := func(x Reg) Reg { return b.Do("cvt.u32.u64", x) }
	first := low(b.Do("shr.u64", r[2], I(32)))
	c := [4]Reg{b.iadd(low(quad), first), b.Do("mov.u32", I(site&0xffffffff)), low(r[2]), low(r[1])}
	k0, k1 := low(r[0]), low(b.Do("shr.u64", r[0], I(32)))
	for round := 0; round < 10; round++ {
		if round > 0 {
			k0, k1 = b.iadd(k0, I(0x9E3779B9)), b.iadd(k1, I(0xBB67AE85))
		}
		lo0, hi0 := b.imul(c[0], I(0xD2511F53)), b.Do("mul.hi.u32", c[0], I(0xD2511F53))
		lo1, hi1 := b.imul(c[2], I(0xCD9E8D57)), b.Do("mul.hi.u32", c[2], I(0xCD9E8D57))
		c = [4]Reg{
			b.Do("xor.b32", b.Do("xor.b32", hi1, c[1]), k0), lo1,
			b.Do("xor.b32", b.Do("xor.b32", hi0, c[3]), k1), lo0,
		}
	}
	return c
}

// choose returns w[i] for a run-time i in 0…3.
func (b *builder) choose(w [4]Reg, i Reg) Reg {
	v := w[0]
	for k := 1; k < 4; k++ {
		v = b.Do("selp.b32", w[k], v, b.Do("setp.eq.u32", i, I(k)))
	}
	return v
}
