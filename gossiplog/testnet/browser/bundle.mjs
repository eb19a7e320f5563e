// Bundle the page for a browser: node bundle.mjs PAGE OUTPUT FOLDER…, where one folder or another has the packages installed.

import fs from "node:fs"
import { createRequire } from "node:module"
import path from "node:path"
import { fileURLToPath } from "node:url"

// One of the reference's packages has a hook for React, which nothing here calls.
const withoutReact = {
	name: "without-react",
	setup(build) {
		build.onResolve({ filter: /^react$/ }, () => ({ path: "react", namespace: "stub" }))
		build.onLoad({ filter: /.*/, namespace: "stub" }, () => ({ contents: "export const useEffect = null, useRef = null, useState = null" }))
	},
}

// What esbuild is told, for a page that uses the reference's packages of these folders.
export const settings = (page, folders) => ({
	entryPoints: [page],
	nodePaths: folders.map((folder) => path.resolve(folder, "node_modules")),
	bundle: true,
	format: "esm",
	platform: "browser",
	conditions: ["browser"],
	define: { "process.env.NODE_ENV": '"production"', global: "globalThis" },
	target: "es2022",
	plugins: [withoutReact],
	logLevel: "error",
})

const found = (name, folders) => {
	for (const folder of folders) {
		try {
			return createRequire(path.resolve(folder, "package.json"))(name)
		} catch (error) {
			if (error.code !== "MODULE_NOT_FOUND") throw error
		}
	}
	console.error(`${name} is not installed`)
	process.exit(1)
}

if (process.argv[1] && fs.realpathSync(process.argv[1]) === fs.realpathSync(fileURLToPath(import.meta.url))) {
	const [page, output, ...folders] = process.argv.slice(2)
	await found("esbuild", folders).build({ ...settings(page, folders), outfile: output })
}
