/** As much of node as the tests here use, so that checking them needs no package of types. */
declare module "node:test" {
  export function test(name: string, body: () => void | Promise<void>): void;
}
declare module "node:assert/strict" {
  const assert: {
    ok(value: unknown): asserts value;
    equal(got: unknown, wanted: unknown): void;
    notEqual(got: unknown, other: unknown): void;
    deepEqual(got: unknown, wanted: unknown): void;
    match(got: string, pattern: RegExp): void;
  };
  export default assert;
}
declare module "node:fs" {
  export function readFileSync(file: URL, encoding: "utf8"): string;
}
declare const process: { env: Record<string, string | undefined> };
declare const Buffer: { from(text: string): { toString(encoding: "base64"): string } };
